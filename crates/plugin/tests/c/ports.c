/* Numbers: which are given, which are refused and for what reason. */
#include "test.h"

static const uint16_t PORT = 8080;

static uint32_t fixed_profile(pr_ctx ctx, const char *service, uint16_t number) {
    pr_port port = {.name = text("http"), .fixed = number, .proto = PR_TCP};
    return put_profile(ctx, service, &port, 1);
}

/* What stands in the way on a host, asked in every way there is: explain, explain_all, feasible and reserve. */
static pr_why only_cause(pr_ctx ctx, uint32_t profile, uint32_t host, uint64_t now) {
    pr_txn txn;
    pr_need need = {.profile = profile};
    pr_why why = {0};
    uint32_t n, by_reason[32];
    EQ(api->txn_begin(ctx, 0, now, &txn), PR_OK);
    EQ(api->explain(txn, &need, host, &why, 1, &n), PR_OK);
    EQ(n, 1);
    uint64_t cand = 1ull << host, fits = 0;
    EQ(api->feasible(txn, &need, &cand, &fits, NULL, 1), 0);
    EQ(fits, 0);
    EQ(api->explain_all(txn, &need, &cand, 1, by_reason, 32), PR_OK);
    for (uint32_t reason = 0; reason < 32; reason++) EQ(by_reason[reason], reason == why.reason);
    pr_want want = {.job = 999, .profile = profile, .host = host};
    pr_grant grant;
    uint16_t port;
    EQ(api->reserve(txn, 0, &want, 1, &grant, &port, 1, &n), PR_ENOPORT);
    EQ(grant.reason, why.reason);
    EQ(grant.retry_ms, why.retry_ms);
    EQ(grant.id, 0);
    EQ(grant.n_ports, 0);
    EQ(api->abort_(txn), PR_OK);
    return why;
}

/* abi 18 */
static void a_fixed_number_is_refused_for_its_own_reason(void) {
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    config.cool_ms = 5000;
    pr_ctx ctx = make(&config);
    put_hosts(ctx, 4);
    static const pr_range reserved = {8000, 8100}, fixed = {9000, 9999};
    pr_host guarded_host = {.size = sizeof guarded_host, .host = 4, .name = text("n4"), .reserved = &reserved, .n_reserved = 1};
    pr_host narrow = {.size = sizeof narrow, .host = 5, .name = text("n5"), .fixed = &fixed, .n_fixed = 1};
    EQ(api->host_put(ctx, &guarded_host, 1), PR_OK);
    EQ(api->host_put(ctx, &narrow, 1), PR_OK);
    uint32_t first = fixed_profile(ctx, "web.alice", PORT), second = fixed_profile(ctx, "web.bob", PORT);
    uint64_t next;
    uint16_t port;

    /* Taken. */
    pr_want want = {.job = 1, .profile = first, .host = 0};
    pr_alloc holder = hold(ctx, &want, &port, 1).id;
    EQ(port, PORT);
    pr_why why = only_cause(ctx, second, 0, 1000);
    EQ(why.reason, PR_R_HELD);
    EQ(why.holder, holder);
    EQ(why.port, PORT);
    EQ(why.proto, PR_TCP);
    EQ(why.item, 0);
    EQ(api->release_begin(ctx, &holder, 1, 0, NULL), PR_OK);
    why = only_cause(ctx, second, 0, 1000);
    EQ(why.reason, PR_R_RELEASING);
    EQ(why.holder, holder);

    /* Cooling. */
    EQ(api->release_confirm(ctx, &holder, 1, 0, 1000, NULL), PR_OK);
    why = only_cause(ctx, second, 0, 2000);
    EQ(why.reason, PR_R_COOLING);
    EQ(why.holder, 0);
    EQ(why.retry_ms, 4000);
    EQ(api->pump(ctx, 2000, &next), PR_OK);
    EQ(next, 6000);

    /* Blocked by a stranger. */
    pr_foreign stranger = {.lo = PORT, .hi = PORT, .proto = PR_TCP, .pid = 4242, .comm = "nginx"};
    EQ(api->report_foreign(ctx, 1, 1, &stranger, 1), PR_OK);
    why = only_cause(ctx, second, 1, 2000);
    EQ(why.reason, PR_R_FOREIGN);
    EQ(why.pid, 4242);

    /* Excluded by the host: reserved there, or no number that may be fixed. */
    EQ(only_cause(ctx, second, 4, 2000).reason, PR_R_RESERVED);
    EQ(only_cause(ctx, second, 5, 2000).reason, PR_R_NOT_IN_POOL);

    /* No host, or one that takes nothing. */
    pr_txn txn;
    pr_need need = {.profile = second};
    pr_grant grant;
    uint32_t n;
    want = (pr_want){.job = 2, .profile = second, .host = 6};
    EQ(api->txn_begin(ctx, 0, 2000, &txn), PR_OK);
    EQ(api->explain(txn, &need, 6, &why, 1, &n), PR_OK);
    EQ(why.reason, PR_R_UNKNOWN_HOST);
    EQ(api->reserve(txn, 0, &want, 1, &grant, &port, 1, &n), PR_ENOENT);
    EQ(grant.reason, PR_R_UNKNOWN_HOST);
    EQ(api->abort_(txn), PR_OK);
    EQ(api->host_state(ctx, 2, PR_HOST_DRAINED), PR_OK);
    EQ(only_cause(ctx, second, 2, 2000).reason, PR_R_DRAINED);
    EQ(api->host_state(ctx, 2, PR_HOST_SUSPECT), PR_OK);
    EQ(only_cause(ctx, second, 2, 2000).reason, PR_R_SUSPECT);
    EQ(api->host_state(ctx, 2, PR_HOST_LOST), PR_OK);
    EQ(only_cause(ctx, second, 2, 2000).reason, PR_R_LOST);

    /* Once it has cooled it is anybody's. */
    want = (pr_want){.job = 2, .profile = second, .host = 0};
    EQ(api->pump(ctx, 6000, &next), PR_OK);
    EQ(next, PR_NEVER);
    hold(ctx, &want, &port, 1);
    EQ(port, PORT);
    EQ(api->destroy(ctx), PR_OK);
}

static int32_t try_profile(pr_ctx ctx, const pr_port *ports, uint32_t n) {
    pr_profile profile = {.size = sizeof profile, .service = text("db.alice"), .ports = ports, .n_ports = n, .port_size = sizeof *ports};
    uint32_t id = 77;
    int32_t code = api->profile_put(ctx, &profile, &id);
    CHECK(code == PR_OK || id == 77);
    return code;
}

/* abi 19 */
static void fixed_numbers_at_their_ends(void) {
    struct world world = make_world(IDLE);
    pr_ctx ctx = world.ctx;
    uint16_t number = 0;
    /* 0 is any. */
    pr_want want = {.job = 10, .profile = fixed_profile(ctx, "zero.alice", 0), .host = 1};
    hold(ctx, &want, &number, 1);
    CHECK(number >= 20000 && number <= 32767);
    want = (pr_want){.job = 11, .profile = fixed_profile(ctx, "last.alice", 65535), .host = 1};
    hold(ctx, &want, &number, 1);
    EQ(number, 65535);
    /* 1 is below what may be fixed. */
    EQ(only_cause(ctx, fixed_profile(ctx, "first.alice", 1), 1, 0).reason, PR_R_NOT_IN_POOL);

    /* The same number, or name, twice in one profile; on both sides of a number it is two. */
    pr_port two[2] = {{.name = text("a"), .fixed = PORT, .proto = PR_TCP}, {.name = text("b"), .fixed = PORT, .proto = PR_TCP}};
    EQ(try_profile(ctx, two, 2), PR_EINVAL);
    two[1].proto = PR_TCP_UDP;
    EQ(try_profile(ctx, two, 2), PR_EINVAL);
    two[1].proto = PR_UDP;
    EQ(try_profile(ctx, two, 2), PR_OK);
    two[1] = (pr_port){.name = text("a"), .proto = PR_TCP};
    EQ(try_profile(ctx, two, 2), PR_EINVAL);

    /* Fixed and a block; blocks at their ends. */
    pr_port block = {.name = text("block"), .fixed = 65535, .count = 2, .proto = PR_TCP};
    EQ(try_profile(ctx, &block, 1), PR_EINVAL);
    block = (pr_port){.name = text("block"), .count = 256, .proto = PR_TCP};
    EQ(try_profile(ctx, &block, 1), PR_OK);
    block.count = 257;
    EQ(try_profile(ctx, &block, 1), PR_ELIMIT);
    block.count = 65535;
    EQ(try_profile(ctx, &block, 1), PR_ELIMIT);
    EQ(try_profile(ctx, NULL, 0), PR_OK);

    /* One number on one host is for one replica. */
    pr_txn txn;
    pr_need need = {.profile = fixed_profile(ctx, "one.alice", PORT)};
    uint64_t fits = 0;
    uint16_t most[64];
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    EQ(api->feasible(txn, &need, NULL, &fits, most, 1), 2);
    EQ(fits, 3);
    for (int at = 0; at < 64; at++) EQ(most[at], at < 2);
    need.replicas = 2;
    EQ(api->feasible(txn, &need, NULL, &fits, most, 1), 0);
    need.replicas = 1;
    pr_want both[2] = {{.job = 12, .replica = 0, .profile = need.profile, .host = 0}, {.job = 12, .replica = 1, .profile = need.profile, .host = 0}};
    pr_grant grants[2];
    uint16_t ports[2];
    uint32_t needed;
    EQ(api->reserve(txn, 0, both, 2, grants, ports, 2, &needed), PR_ENOPORT);
    EQ(grants[0].rc, PR_OK);
    EQ(grants[1].rc, PR_ENOPORT);
    EQ(grants[1].reason, PR_R_HELD);
    EQ(api->feasible(txn, &need, NULL, &fits, most, 1), 1);
    EQ(fits, 2);
    EQ(api->abort_(txn), PR_OK);
    end_world(&world);
}

/* abi 20 */
static void room_that_is_one_too_small_takes_nothing(void) {
    struct world world = make_world(IDLE);
    pr_port ports[2] = {{.name = text("http"), .proto = PR_TCP}, {.name = text("rpc"), .count = 4, .proto = PR_UDP}};
    uint32_t profile = put_profile(world.ctx, "db.alice", ports, 2);
    pr_want wants[3];
    for (uint32_t at = 0; at < 3; at++) wants[at] = (pr_want){.job = 20, .replica = at, .profile = profile, .host = at % 2};
    static const uint32_t ways[] = {0, PR_RESERVE_ALL};
    for (size_t way = 0; way < 2; way++) {
        pr_txn txn;
        EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
        pr_stats was = stats_of(world.ctx);
        uint32_t *need = guarded(0, sizeof *need);
        pr_grant *grants = guarded(1, 3 * sizeof *grants);
        for (uint32_t cap = 0; cap < 15; cap++) {
            trying("room for %u", cap);
            uint16_t *numbers = guarded(2, cap * sizeof *numbers);
            *need = 0;
            EQ(api->reserve(txn, ways[way], wants, 3, grants, cap == 0 ? NULL : numbers, cap, need), PR_ENOSPC);
            EQ(*need, 15);
            pr_stats is = stats_of(world.ctx);
            CHECK(same_state(&was, &is));
            for (size_t byte = 0; byte < 3 * sizeof *grants; byte++) CHECK(((unsigned char *)grants)[byte] == 0xa5);
            for (uint32_t at = 0; at < cap; at++) EQ(numbers[at], 0xa5a5);
        }
        uint16_t *numbers = guarded(2, 15 * sizeof *numbers);
        EQ(api->reserve(txn, ways[way], wants, 3, grants, numbers, 15, need), PR_OK);
        EQ(*need, 15);
        for (uint32_t at = 0; at < 3; at++) {
            EQ(grants[at].n_ports, 5);
            EQ(grants[at].port_off, 5 * at);
            for (uint32_t in = 2; in < 5; in++) EQ(numbers[5 * at + in], numbers[5 * at + in - 1] + 1);
        }
        /* Again: the same ids and numbers, and no failure if all are meant together. */
        pr_grant again[3];
        uint16_t same[15];
        EQ(api->reserve(txn, ways[way], wants, 3, again, same, 15, need), ways[way] == 0 ? PR_EEXIST : PR_OK);
        CHECK(memcmp(same, numbers, sizeof same) == 0);
        for (uint32_t at = 0; at < 3; at++) {
            EQ(again[at].rc, PR_EEXIST);
            EQ(again[at].id, grants[at].id);
        }
        EQ(api->abort_(txn), PR_OK);
    }
    end_world(&world);
}

/* All or none: the one that fails says why, the others that they were given back, and a sum of what is held shows it. */
static void a_gang_of_which_one_fails_takes_nothing(void) {
    struct world world = make_world(IDLE);
    uint32_t profile = fixed_profile(world.ctx, "one.alice", PORT);
    pr_txn txn;
    EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
    pr_stats was = stats_of(world.ctx);
    for (uint32_t bad = 0; bad < 3; bad++) {
        trying("the one at %u fails", bad);
        pr_want wants[3] = {{.job = 1, .replica = 5, .profile = world.profile}, {.job = 1, .replica = 6, .profile = profile, .host = 1},
                            {.job = 1, .replica = 7, .profile = world.profile, .host = 1}};
        wants[bad].host = 63;
        pr_grant grants[3];
        uint16_t numbers[3];
        uint32_t need;
        EQ(api->reserve(txn, PR_RESERVE_ALL, wants, 3, grants, numbers, 3, &need), PR_ENOENT);
        for (uint32_t at = 0; at < 3; at++) {
            if (at == bad) EQ(grants[at].rc, PR_ENOENT);
            else CHECK(grants[at].rc == PR_EAGAIN || at > bad);
            EQ(grants[at].id, 0);
        }
        pr_stats is = stats_of(world.ctx);
        CHECK(same_state(&was, &is));
    }
    EQ(api->abort_(txn), PR_OK);
    end_world(&world);
}

const struct test ports_tests[] = {
    {"a_fixed_number_is_refused_for_its_own_reason", a_fixed_number_is_refused_for_its_own_reason},
    {"fixed_numbers_at_their_ends", fixed_numbers_at_their_ends},
    {"room_that_is_one_too_small_takes_nothing", room_that_is_one_too_small_takes_nothing},
    {"a_gang_of_which_one_fails_takes_nothing", a_gang_of_which_one_fails_takes_nothing},
    {NULL, NULL},
};
