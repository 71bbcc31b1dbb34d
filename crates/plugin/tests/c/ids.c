/* Ids: of another kind, of another context, of what has ended, and never given twice. */
#include "calls.h"

static pr_alloc all_ids(const struct world *world, unsigned kind) {
    const uint64_t ids[] = {0, world->ctx, world->txn, world->held, world->snap, world->watch, world->sup};
    return ids[kind];
}

/* abi 10 */
static void wrong_id_one(const struct call *call, const struct world *world, const union value *values) {
    union value probe[PARAMS + 1];
    memcpy(probe, values, sizeof probe);
    struct dice d = {(uint64_t)(call - calls)};
    for (unsigned at = 0; call->params[at].role != END; at++) {
        if (call->params[at].role != ID) continue;
        uint64_t wrong[128] = {0, 1, UINT64_MAX, UINT64_MAX >> 1, 1ull << 63};
        unsigned n = 5;
        for (unsigned kind = 1; kind <= SUP; kind++) {
            if (kind != call->params[at].with && all_ids(world, kind) != 0) wrong[n++] = all_ids(world, kind);
        }
        for (unsigned bit = 0; bit < 64; bit += rounds(20) == 20 ? 1 : 7) wrong[n++] = values[at].u ^ 1ull << bit;
        for (int r = 0; r < 20; r++) wrong[n++] = roll(&d);
        for (unsigned w = 0; w < n; w++) {
            trying("%s, argument %u is %#llx", call->name, at, (unsigned long long)wrong[w]);
            probe[at].u = wrong[w];
            must_refuse(call, world, probe, PR_ESTALE);
        }
        probe[at] = values[at];
    }
}

static void an_id_that_is_not_is_never_followed(void) {
    for_each_call(wrong_id_one);
}

/* abi 10: two contexts alike; what belongs to one is nothing in the other, and the other does not change. */
static void an_id_of_another_context_is_stale(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        struct world one = make_world(it->phase), two = make_world(it->phase);
        union value values[PARAMS + 1];
        /* Beside an id of the context itself only grants are named. */
        if (it->params[0].role == ID && it->params[1].role == ID) {
            arguments(it, &one, values);
            trying("%s of another context", it->name);
            values[0].u = two.ctx;
            must_refuse(it, &one, values, PR_ESTALE);
            values[0].u = one.ctx;
            values[1].u = two.held;
            must_refuse(it, &two, values, PR_ESTALE);
        }
        end_world(&one);
        end_world(&two);
    }
}

/* In a batch each element has its own code, and the others are done. */
static void a_stale_id_in_a_batch_stops_nobody_else(void) {
    struct world world = make_world(IDLE), other = make_world(IDLE);
    pr_want want = {.job = 7, .profile = world.profile, .host = 1};
    uint16_t number;
    pr_alloc mine = hold(world.ctx, &want, &number, 1).id;
    const pr_alloc ids[] = {0, world.held, other.held, world.ctx, mine, UINT64_MAX, mine};
    enum { N = sizeof ids / sizeof *ids };
    const int32_t begun[N] = {PR_ESTALE, PR_OK, PR_ESTALE, PR_ESTALE, PR_OK, PR_ESTALE, PR_ESTATE};
    const int32_t confirmed[N] = {PR_ESTALE, PR_OK, PR_ESTALE, PR_ESTALE, PR_OK, PR_ESTALE, PR_ESTALE};
    const pr_alloc *all = guarded_copy(0, ids, sizeof ids);
    int32_t *rc = guarded(1, sizeof begun);
    pr_txn txn;
    EQ(api->txn_begin(world.ctx, PR_TXN_WHATIF, 0, &txn), PR_OK);
    EQ(api->give(txn, all, N, rc), PR_ESTALE);
    CHECK(memcmp(rc, confirmed, sizeof confirmed) == 0);
    EQ(api->abort_(txn), PR_OK);
    pr_ready ready[N];
    for (unsigned at = 0; at < N; at++) ready[at] = (pr_ready){.id = ids[at], .seq = 9, .run = 1, .state = PR_E_READY};
    EQ(api->report_ready(world.ctx, ready, N, rc), PR_ESTALE);
    CHECK(memcmp(rc, confirmed, sizeof confirmed) == 0);
    EQ(api->release_begin(world.ctx, all, N, 0, rc), PR_ESTALE);
    CHECK(memcmp(rc, begun, sizeof begun) == 0);
    EQ(api->release_confirm(world.ctx, all, N, 0, 2000, rc), PR_ESTALE);
    CHECK(memcmp(rc, confirmed, sizeof confirmed) == 0);
    uint64_t next;
    EQ(api->pump(world.ctx, 2000, &next), PR_OK);
    EQ(stats_of(world.ctx).allocs, 0);
    EQ(stats_of(other.ctx).allocs, 1);
    end_world(&world);
    end_world(&other);
}

/* abi 12 */
static void every_call_after_destroy_is_stale(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        if (it->params[0].role != ID || it->params[0].with == SUP) continue;
        trying("%s after destroy", it->name);
        struct world world = make_world(it->phase);
        union value values[PARAMS + 1];
        arguments(it, &world, values);
        EQ(api->destroy(world.ctx), PR_OK);
        world.ctx = 0;
        must_refuse(it, &world, values, PR_ESTALE);
        /* A context that comes into its place is not the one they mean. */
        struct world next = make_world(it->phase);
        must_refuse(it, &next, values, PR_ESTALE);
        end_world(&next);
        end_world(&world);
    }
}

/* abi 11: each end is one, and is counted as one. */
static void nothing_ends_twice(void) {
    struct world world = make_world(IDLE);
    pr_txn txn;
    uint64_t number = 77, next;
    uint32_t mark;
    pr_stats was = stats_of(world.ctx);
    EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
    EQ(api->mark(txn, &mark), PR_OK);
    EQ(api->abort_(txn), PR_OK);
    EQ(api->commit(txn, &number), PR_ESTALE);
    EQ(api->abort_(txn), PR_ESTALE);
    EQ(api->rollback(txn, mark), PR_ESTALE);
    EQ(number, 77);
    pr_stats is = stats_of(world.ctx);
    EQ(is.aborts - was.aborts, 1);
    EQ(is.commits - was.commits, 0);
    EQ(is.stale - was.stale, 3);
    EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
    pr_want want = {.job = 9, .profile = world.profile, .host = 1};
    pr_grant grant;
    uint16_t port;
    uint32_t need;
    EQ(api->reserve(txn, 0, &want, 1, &grant, &port, 1, &need), PR_OK);
    EQ(api->commit(txn, &number), PR_OK);
    EQ(api->commit(txn, &number), PR_ESTALE);
    EQ(api->abort_(txn), PR_ESTALE);
    is = stats_of(world.ctx);
    EQ(is.commits - was.commits, 1);
    EQ(is.aborts - was.aborts, 1);
    EQ(is.allocs - was.allocs, 1);
    EQ(api->release_confirm(world.ctx, &grant.id, 1, PR_REL_NO_COOL, 0, NULL), PR_OK);
    EQ(api->release_confirm(world.ctx, &grant.id, 1, PR_REL_NO_COOL, 0, NULL), PR_ESTALE);
    EQ(api->release_begin(world.ctx, &grant.id, 1, 0, NULL), PR_ESTALE);
    EQ(api->pump(world.ctx, 0, &next), PR_OK);
    EQ(api->release_confirm(world.ctx, &grant.id, 1, 0, 0, NULL), PR_ESTALE);
    is = stats_of(world.ctx);
    EQ(is.allocs, was.allocs);
    EQ(is.ports_used, was.ports_used);
    EQ(is.ports_cooling, was.ports_cooling);
    EQ(api->snap_close(world.snap), PR_OK);
    EQ(api->snap_close(world.snap), PR_ESTALE);
    pr_endpoint endpoint;
    EQ(api->snap_read(world.snap, 0, &endpoint, 1, &need), PR_ESTALE);
    EQ(stats_of(world.ctx).snaps, 0);
    EQ(api->watch_close(world.watch), PR_OK);
    EQ(api->watch_close(world.watch), PR_ESTALE);
    pr_change change;
    EQ(api->watch_next(world.watch, &change, 1, &need, &mark), PR_ESTALE);
    EQ(stats_of(world.ctx).watches, 0);
    EQ(api->sup_free(world.sup), PR_OK);
    EQ(api->sup_free(world.sup), PR_ESTALE);
    EQ(api->sup_deadline(world.sup, 0), PR_ESTALE);
    world.sup = 0;
    EQ(api->destroy(world.ctx), PR_OK);
    EQ(api->destroy(world.ctx), PR_ESTALE);
    world.ctx = 0;
    end_world(&world);
}

/* Some of the ids that there were. */
struct memory {
    uint64_t old[256];
    unsigned n;
};

/* Keeps the first hundred, and then those of rounds that are a power of two times 1, 3, 5 or 7. */
static void keep(struct memory *memory, uint64_t id, uint32_t round) {
    if (memory->n < 256 && (round < 100 || (round >> __builtin_ctz(round)) < 8)) memory->old[memory->n++] = id;
}

/* One of those that are kept; 0, which is as stale, if there is none. */
static uint64_t recall(const struct memory *memory, uint32_t round) {
    return memory->n == 0 ? 0 : memory->old[round % memory->n];
}

/* abi 13; 2^20 rounds are played by the unit test of slots and by PORTREEVE_LONG here. */
static void an_old_id_never_means_a_new_grant(void) {
    uint32_t most = rounds(getenv("PORTREEVE_LONG") != NULL ? 1u << 20 : 1u << 13);
    struct memory grants = {0}, txns = {0};
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    config.max_allocs = 2;
    pr_ctx ctx = make(&config);
    put_hosts(ctx, 1);
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    pr_want want = {.profile = put_profile(ctx, "web.alice", &http, 1)};
    for (uint32_t round = 1; round <= most; round++) {
        trying("round %u", round);
        pr_txn txn;
        pr_grant grant;
        pr_rec rec;
        uint16_t port;
        uint32_t need;
        uint64_t number;
        want.job = round;
        EQ(api->txn_begin(ctx, 0, round, &txn), PR_OK);
        EQ(api->reserve(txn, 0, &want, 1, &grant, &port, 1, &need), PR_OK);
        EQ(api->abort_(recall(&txns, round)), PR_ESTALE);
        EQ(api->grant_get(ctx, recall(&grants, round), &rec, &port, 1, &need), PR_ESTALE);
        EQ(api->commit(txn, &number), PR_OK);
        EQ(api->grant_get(ctx, grant.id, &rec, &port, 1, &need), PR_OK);
        EQ(api->release_confirm(ctx, &grant.id, 1, PR_REL_NO_COOL, round, NULL), PR_OK);
        keep(&grants, grant.id, round);
        keep(&txns, txn, round);
        uint64_t old = recall(&grants, round);
        EQ(api->release_begin(ctx, &old, 1, 0, NULL), PR_ESTALE);
        EQ(api->commit(recall(&txns, round), &number), PR_ESTALE);
    }
    EQ(api->destroy(ctx), PR_OK);
}

static void an_old_id_never_means_a_new_context_snapshot_or_watch(void) {
    struct memory contexts = {0}, snaps = {0}, watches = {0}, machines = {0};
    for (uint32_t round = 1; round <= rounds(600); round++) {
        trying("round %u", round);
        struct world world = make_world(IDLE);
        uint64_t next;
        EQ(api->pump(recall(&contexts, round), 0, &next), PR_ESTALE);
        keep(&contexts, world.ctx, round);
        keep(&snaps, world.snap, round);
        keep(&watches, world.watch, round);
        keep(&machines, world.sup, round);
        end_world(&world);
        EQ(api->snap_close(recall(&snaps, round)), PR_ESTALE);
        EQ(api->watch_close(recall(&watches, round)), PR_ESTALE);
        EQ(api->sup_free(recall(&machines, round)), PR_ESTALE);
    }
}

/* 256 contexts are told apart; one more is refused and makes nothing; and one that ends makes room. */
static void so_many_contexts_and_no_more(void) {
    enum { MANY = 256 };
    static pr_ctx all[MANY];
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    for (uint32_t at = 0; at < MANY; at++) all[at] = make(&config);
    pr_ctx more = 77;
    EQ(api->create(&config, &more), PR_ELIMIT);
    EQ(more, 77);
    for (uint32_t at = 0; at < MANY; at++) {
        pr_txn txn;
        EQ(api->txn_begin(all[at], 0, 0, &txn), PR_OK);
    }
    EQ(api->destroy(all[100]), PR_OK);
    EQ(api->create(&config, &more), PR_OK);
    CHECK(more != all[100]);
    EQ(api->destroy(all[100]), PR_ESTALE);
    all[100] = more;
    for (uint32_t at = 0; at < MANY; at++) EQ(api->destroy(all[at]), PR_OK);
}

const struct test ids_tests[] = {
    {"an_id_that_is_not_is_never_followed", an_id_that_is_not_is_never_followed},
    {"an_id_of_another_context_is_stale", an_id_of_another_context_is_stale},
    {"a_stale_id_in_a_batch_stops_nobody_else", a_stale_id_in_a_batch_stops_nobody_else},
    {"every_call_after_destroy_is_stale", every_call_after_destroy_is_stale},
    {"nothing_ends_twice", nothing_ends_twice},
    {"an_old_id_never_means_a_new_grant", an_old_id_never_means_a_new_grant},
    {"an_old_id_never_means_a_new_context_snapshot_or_watch", an_old_id_never_means_a_new_context_snapshot_or_watch},
    {"so_many_contexts_and_no_more", so_many_contexts_and_no_more},
    {NULL, NULL},
};
