/* Values at their ends: sizes, maxima, moments, and arguments that lie over each other. */
#include <sys/resource.h>
#include "calls.h"

/* What a call left behind that the world does not end. */
static void clean_up(const struct call *call, int64_t code, const union value *values, struct world *world) {
    if (code < 0) return;
    if (strcmp(call->name, "create") == 0) api->destroy(*(pr_ctx *)values[1].p);
    if (strcmp(call->name, "sup_new") == 0) api->sup_free(*(pr_sup *)values[2].p);
    if (strcmp(call->name, "sup_load") == 0) api->sup_free(*(pr_sup *)values[3].p);
    if (strcmp(call->name, "destroy") == 0) world->ctx = 0;
    if (strcmp(call->name, "sup_free") == 0) world->sup = 0;
}

/* The parameter of a call that begins with its size, or -1. */
static int sized(const struct call *call) {
    static const char *const types[] = {"pr_config", "pr_host", "pr_network", "pr_profile", "pr_stats", "pr_sup_event", "pr_sup_effect"};
    for (int at = 0; call->params[at].role != END; at++) {
        for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
            if (strcmp(call->params[at].type, types[t]) == 0) return at;
        }
    }
    return -1;
}

/* abi 5 to 7: a size is one that can be, and then every byte of it may be read and no other. */
static void each_size_is_taken_or_refused(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        int at = sized(it);
        if (at < 0) continue;
        const int out = it->params[at].role == OUT;
        struct world world = make_world(it->phase);
        union value values[PARAMS + 1];
        arguments(it, &world, values);
        static char filled[4200];
        memset(filled, 0, sizeof filled);
        memcpy(filled, values[at].p, it->params[at].size);
        for (uint32_t size = 0; size <= 4104; size += rounds(20) == 20 ? 4 : 60) {
            trying("%s of %u bytes", it->name, size);
            /* At least the size itself is there. */
            uint32_t bytes = size < 8 ? 8 : size;
            memcpy(filled, &size, sizeof size);
            values[at].p = (char *)guarded(15, (bytes + 7) / 8 * 8);
            memcpy(values[at].p, filled, bytes);
            int64_t code = it->go(values);
            int known = size <= 4096 && size % 8 == 0 && size >= (out ? 8 : it->params[at].size);
            if (known) CHECK(code >= 0);
            else EQ(code, PR_EINVAL);
            /* So that no maximum is met. */
            if (code >= 0 && strcmp(it->name, "profile_put") == 0) EQ(api->profile_drop(world.ctx, *(uint32_t *)values[2].p), PR_OK);
            pr_sup_effect effect = {.size = sizeof effect};
            while (strcmp(it->name, "sup_event") == 0 && api->sup_next_effect(world.sup, &effect) == 1) effect.size = sizeof effect;
            clean_up(it, code, values, &world);
            if (!known || size <= it->params[at].size) continue;
            /* One byte behind what is known, the first or the last: of somebody newer. */
            for (int last = 0; last < 2; last++) {
                memcpy(values[at].p, filled, bytes);
                ((char *)values[at].p)[last ? size - 1 : it->params[at].size] = 1;
                EQ(it->go(values), PR_E2BIG);
            }
        }
        end_world(&world);
    }
}

/* Any two pointers of a call may be the same, or nearly so: what comes out is whatever comes out, and nothing else is touched. */
static void arguments_may_lie_over_each_other(void) {
    static const int shifts[] = {0, 8, 4, 2, 1, 16, 64};
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        for (int a = 0; it->params[a].role != END; a++) {
            for (int b = 0; it->params[b].role != END; b++) {
                if (a == b || !is_pointer(it->params[a].role) || !is_pointer(it->params[b].role)) continue;
                /* Most that is between them fits the bigger one. */
                for (unsigned s = 0; s < sizeof shifts / sizeof *shifts; s++) {
                    if (shifts[s] % (int)it->params[a].align != 0 || it->params[a].size > it->params[b].size + (uint32_t)shifts[s]) continue;
                    if (rounds(20) != 20 && s > 1) continue;
                    struct world world = make_world(it->phase);
                    union value values[PARAMS + 1];
                    arguments(it, &world, values);
                    trying("%s, argument %d begins %d bytes before %d", it->name, a, shifts[s], b);
                    char *there = (char *)values[b].p - shifts[s];
                    /* One of them keeps what it had, if it is read. */
                    const enum role role = it->params[a].role;
                    if (role == IN || role == ARRAY || role == IN_OR_NULL) memcpy(there, values[a].p, it->params[a].size);
                    values[a].p = there;
                    int64_t code = it->go(values);
                    clean_up(it, code, values, &world);
                    if (world.ctx != 0) EQ(stats_of(world.ctx).poisoned, 0);
                    end_world(&world);
                }
            }
        }
    }
}

/* Candidates over the answer, word by word: never a host that does not exist, and in place exactly what it is apart. */
static void candidates_over_the_answer(void) {
    enum { HOSTS = 300, WORDS = 5 };
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    config.max_hosts = HOSTS;
    pr_ctx ctx = make(&config);
    put_hosts(ctx, HOSTS);
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    pr_need need = {.profile = put_profile(ctx, "web.alice", &http, 1)};
    pr_txn txn;
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    for (int shift = -WORDS; shift <= WORDS; shift++) {
        trying("the answer %d words behind the candidates", shift);
        uint64_t *all = guarded(0, 3 * WORDS * 8);
        uint64_t *cand = all + WORDS, *out = cand + shift;
        memset(all, 0x55, 3 * WORDS * 8);
        int64_t set = api->feasible(txn, &need, cand, out, NULL, WORDS);
        CHECK(set == PR_EINVAL || (set >= 0 && set <= HOSTS));
        if (shift == 0) EQ(set, HOSTS / 2);
        CHECK(set < 0 || out[WORDS - 1] >> (HOSTS % 64) == 0);
    }
    EQ(api->abort_(txn), PR_OK);
    EQ(api->destroy(ctx), PR_OK);
}

/* Time goes on from the largest moment that was told, which may be the last one there is. */
static void the_last_moment_is_one_like_others(void) {
    pr_config config = small_config(0);
    config.cool_ms = config.foreign_rest_ms = UINT32_MAX;
    pr_ctx ctx = make(&config);
    pr_host host = {.size = sizeof host, .name = text("n0"), .cool_ms = UINT32_MAX};
    EQ(api->host_put(ctx, &host, 1), PR_OK);
    const pr_port ports[] = {{.name = text("http"), .fixed = 8080, .proto = PR_TCP_UDP}, {.name = text("rpc"), .proto = PR_TCP}};
    uint32_t profile = put_profile(ctx, "web.alice", ports, 2), conflicts, need, done;
    pr_rec resting = {.who = {.profile = PR_ANY, .step = PR_ANY, .replica = PR_ANY}, .n_ports = 1, .state = PR_P_COOLING, .cool_left_ms = UINT32_MAX, .flags = PR_REC_TCP};
    uint16_t number = 25000;
    EQ(api->restore_put(ctx, &resting, 1, &number, 1, NULL), PR_OK);
    EQ(api->restore_end(ctx, 0, UINT64_MAX, &conflicts), PR_OK);
    static const uint64_t moments[] = {0, UINT64_MAX, 5, UINT64_MAX - 1, 1ull << 63, UINT64_MAX, 0};
    uint32_t job = 1;
    for (unsigned at = 0; at < 7; at++, job++) {
        trying("at %#llx", (unsigned long long)moments[at]);
        pr_txn txn;
        pr_grant grant;
        uint16_t numbers[2];
        uint64_t next = 77, commit_no, word;
        pr_want want = {.job = job, .profile = profile};
        pr_need ask = {.profile = profile, .at_ms = moments[at]};
        pr_why why[8];
        EQ(api->txn_begin(ctx, 0, moments[at], &txn), PR_OK);
        int64_t fits = api->feasible(txn, &ask, NULL, &word, NULL, 1);
        CHECK(fits == 0 || fits == 1);
        EQ(api->explain(txn, &ask, 0, why, 8, &need), PR_OK);
        EQ(need == 0, fits == 1);
        ask.at_ms = UINT64_MAX;
        fits = api->feasible(txn, &ask, NULL, &word, NULL, 1);
        CHECK(fits == 0 || fits == 1);
        int32_t code = api->reserve(txn, 0, &want, 1, &grant, numbers, 2, &need);
        CHECK(code == PR_OK || code == PR_ENOPORT);
        uint32_t cursor = 0, n;
        pr_held held[16];
        EQ(api->holders(txn, 0, &cursor, held, 16, &n), PR_OK);
        EQ(api->commit(txn, &commit_no), PR_OK);
        if (code == PR_OK) EQ(api->report_conflict(ctx, grant.id, numbers[1], PR_TCP, 1), PR_OK);
        EQ(api->release_job(ctx, job, PR_ANY, 1, moments[at], &done), PR_OK);
        EQ(api->pump(ctx, moments[at], &next), PR_OK);
        uint64_t export_cursor = 0;
        uint32_t n_ports;
        pr_rec recs[8];
        uint16_t all[512];
        EQ(api->export_(ctx, &export_cursor, recs, 8, all, 512, &n, &n_ports), PR_OK);
        EQ(api->dump(ctx, NULL, 0, &need), PR_ENOSPC);
        EQ(stats_of(ctx).poisoned, 0);
    }
    EQ(api->destroy(ctx), PR_OK);
}

/* A context that has room for one of everything does everything, once. */
static void one_of_everything_is_enough(void) {
    pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = 1, .max_allocs = 1, .max_profiles = 1, .max_waits = 1, .max_watches = 1, .max_ports = 1};
    pr_ctx ctx = make(&config);
    put_hosts(ctx, 1);
    pr_host second = {.size = sizeof second, .host = 1, .name = text("n1")};
    EQ(api->host_put(ctx, &second, 1), PR_ELIMIT);
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    pr_want want = {.job = 1, .profile = put_profile(ctx, "web.alice", &http, 1)}, other = want;
    other.job = 2;
    pr_profile profile = {.size = sizeof profile, .service = text("db.alice"), .ports = &http, .n_ports = 1, .port_size = sizeof http};
    uint32_t id;
    EQ(api->profile_put(ctx, &profile, &id), PR_ELIMIT);
    pr_watch watch, none;
    int fd;
    EQ(api->watch_open(ctx, text(""), 0, &watch, &fd), PR_OK);
    EQ(api->watch_open(ctx, text(""), 0, &none, &fd), PR_ELIMIT);
    EQ(api->wait_put(ctx, &other, 1, NULL), PR_OK);
    other.job = 3;
    EQ(api->wait_put(ctx, &other, 1, NULL), PR_ELIMIT);
    const pr_want pair[2] = {want, other};
    int32_t codes[2];
    EQ(api->wait_put(ctx, pair, 2, codes), PR_ELIMIT);
    for (uint32_t round = 0; round < 50; round++) {
        trying("round %u", round);
        pr_txn txn;
        pr_grant grants[2];
        uint16_t numbers[2];
        uint32_t need, n, flags;
        uint64_t number, next;
        want.incarnation = round;
        EQ(api->txn_begin(ctx, 0, round, &txn), PR_OK);
        EQ(api->reserve(txn, 0, pair, 2, grants, numbers, 2, &need), PR_ELIMIT);
        EQ(api->reserve(txn, 0, &want, 1, grants, numbers, 1, &need), PR_OK);
        EQ(api->reserve(txn, 0, &other, 1, grants + 1, numbers, 1, &need), PR_ELIMIT);
        EQ(api->commit(txn, &number), PR_OK);
        EQ(api->release_confirm(ctx, &grants[0].id, 1, PR_REL_NO_COOL, round, NULL), PR_OK);
        EQ(api->pump(ctx, round, &next), PR_OK);
        pr_change change;
        EQ(api->watch_next(watch, &change, 1, &n, &flags), PR_OK);
    }
    pr_stats stats = stats_of(ctx);
    EQ(stats.allocs, 0);
    EQ(stats.ports_used, 0);
    EQ(api->destroy(ctx), PR_OK);
}

/* Each maximum at its bound is made, or there is no memory and nothing is; one more is never tried. */
static void a_maximum_at_its_bound_is_made_or_there_is_no_memory(void) {
    static const struct {
        size_t at;
        uint32_t bound;
    } maxima[] = {{offsetof(pr_config, max_hosts), 1u << 20}, {offsetof(pr_config, max_allocs), 1u << 24}, {offsetof(pr_config, max_profiles), 1u << 20},
                  {offsetof(pr_config, max_waits), 1u << 24}, {offsetof(pr_config, max_watches), 1u << 20}, {offsetof(pr_config, max_ports), 1u << 24}};
    for (unsigned at = 0; at < sizeof maxima / sizeof *maxima; at++) {
        static const uint32_t beyond[] = {1, 2, 1u << 30, UINT32_MAX};
        for (int b = 0; b < 4; b++) {
            pr_config config = small_config(0);
            *(uint32_t *)((char *)&config + maxima[at].at) = b < 3 ? maxima[at].bound + beyond[b] : UINT32_MAX;
            pr_ctx ctx = 77;
            trying("maximum %u is %u", at, *(uint32_t *)((char *)&config + maxima[at].at));
            EQ(api->create(&config, &ctx), PR_ELIMIT);
            EQ(ctx, 77);
        }
#ifndef SANITIZED
        if (rounds(20) != 20) continue;
        /* Little memory, so that this host does not take what others need. */
        struct rlimit usual, little;
        EQ(getrlimit(RLIMIT_AS, &usual), 0);
        little = usual;
        little.rlim_cur = 1u << 30;
        EQ(setrlimit(RLIMIT_AS, &little), 0);
        pr_config config = small_config(0);
        *(uint32_t *)((char *)&config + maxima[at].at) = maxima[at].bound;
        pr_ctx ctx = 77;
        int32_t code = api->create(&config, &ctx);
        EQ(setrlimit(RLIMIT_AS, &usual), 0);
        CHECK(code == PR_OK || code == PR_ENOMEM);
        if (code == PR_OK) EQ(api->destroy(ctx), PR_OK);
        else EQ(ctx, 77);
#endif
    }
}

static void so_many_ranges_and_no_more(void) {
    enum { MOST_RANGES = 1024 };
    static pr_range ranges[MOST_RANGES + 1];
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    pr_ctx ctx = make(&config);
    for (uint32_t at = 0; at <= MOST_RANGES; at++) ranges[at] = (pr_range){(uint16_t)(1 + at * 63), (uint16_t)(1 + at * 63 + 1)};
    for (int which = 0; which < 4; which++) {
        for (uint32_t n = MOST_RANGES; n <= MOST_RANGES + 1; n++) {
            trying("%u ranges, list %d", n, which);
            const pr_range *all = guarded_copy(0, ranges, n * sizeof *all);
            pr_host host = {.size = sizeof host, .name = text("n0")};
            if (which != 1) host.dynamic = all, host.n_dynamic = n;
            if (which != 2) host.fixed = all, host.n_fixed = n;
            if (which != 3) host.reserved = all, host.n_reserved = n;
            EQ(api->host_put(ctx, &host, 1), n > MOST_RANGES ? PR_ELIMIT : PR_OK);
        }
    }
    static const pr_range wrong[] = {{0, 5}, {0, 0}, {6, 5}, {65535, 1}};
    for (unsigned at = 0; at < 4; at++) {
        pr_host host = {.size = sizeof host, .name = text("n1"), .host = 1, .dynamic = &wrong[at], .n_dynamic = 1};
        EQ(api->host_put(ctx, &host, 1), PR_EINVAL);
    }
    /* What overlaps is one; what is all reserved gives nothing. */
    const pr_range over[] = {{100, 200}, {150, 160}, {200, 300}, {301, 301}, {1, 65535}, {65535, 65535}};
    pr_host host = {.size = sizeof host, .name = text("n0"), .dynamic = over, .n_dynamic = 6, .reserved = over, .n_reserved = 6};
    EQ(api->host_put(ctx, &host, 1), PR_OK);
    host.reserved = NULL, host.n_reserved = 0;
    EQ(api->host_put(ctx, &host, 1), PR_OK);
    EQ(stats_of(ctx).ports_total, 65535);
    /* Of a profile they are counted over all its ports. */
    pr_port ports[2] = {{.name = text("a"), .proto = PR_TCP, .within = ranges, .n_within = MOST_RANGES}, {.name = text("b"), .proto = PR_TCP}};
    pr_profile profile = {.size = sizeof profile, .service = text("web.alice"), .ports = ports, .n_ports = 2, .port_size = sizeof *ports};
    uint32_t id;
    EQ(api->profile_put(ctx, &profile, &id), PR_OK);
    ports[1].within = ranges, ports[1].n_within = 1;
    EQ(api->profile_put(ctx, &profile, &id), PR_ELIMIT);
    ports[1].within = NULL, ports[1].n_within = UINT32_MAX;
    int32_t code = api->profile_put(ctx, &profile, &id);
    CHECK(code == PR_EINVAL || code == PR_ELIMIT);
    EQ(api->destroy(ctx), PR_OK);
}

/* Networks that are none, too many, or everything there is. */
static void networks_at_their_ends(void) {
    enum { MOST_NETWORKS = 64 };
    struct world world = make_world(IDLE);
    const pr_network good = {.size = sizeof good, .name = text("fast"), .ip = {10}, .family = 4, .prefix = 8};
    pr_network bad[] = {good, good, good, good, good, good, good, good, good, good};
    bad[0].family = 0, bad[1].family = 5, bad[2].prefix = 33, bad[3].prefix = 6, bad[4].ip[1] = 1, bad[5].ip[4] = 1, bad[6].flags = 1;
    bad[7].family = 6, bad[7].prefix = 129, bad[8].name = text("Fast"), bad[9].name.n = 0;
    for (unsigned at = 0; at < sizeof bad / sizeof *bad; at++) {
        trying("network %u", at);
        const pr_network pair[2] = {good, bad[at]};
        EQ(api->network_put(world.ctx, &bad[at], 1), PR_EINVAL);
        EQ(api->network_put(world.ctx, pair, 2), PR_EINVAL);
    }
    trying("a port of a network that was refused");
    pr_port ports[2] = {{.name = text("http"), .network = text("fast"), .proto = PR_TCP}, {.name = text("rpc"), .network = text("all"), .proto = PR_TCP}};
    pr_profile profile = {.size = sizeof profile, .service = text("net.alice"), .ports = ports, .n_ports = 2, .port_size = sizeof *ports};
    uint32_t id = 77, n, need;
    EQ(api->profile_put(world.ctx, &profile, &id), PR_ENOENT);
    EQ(id, 77);
    pr_network all[MOST_NETWORKS + 1];
    static char names[MOST_NETWORKS + 1][8];
    for (int at = 0; at <= MOST_NETWORKS; at++) {
        snprintf(names[at], sizeof names[at], "n%d", at);
        all[at] = good;
        all[at].name = text(names[at]);
    }
    all[0] = good;
    all[1] = (pr_network){.size = sizeof good, .name = text("all"), .family = 6, .prefix = 0};
    EQ(api->network_put(world.ctx, all, MOST_NETWORKS + 1), PR_ELIMIT);
    EQ(api->network_put(world.ctx, all, MOST_NETWORKS), PR_OK);
    EQ(api->network_put(world.ctx, all, MOST_NETWORKS), PR_OK);
    EQ(api->network_put(world.ctx, &all[MOST_NETWORKS], 1), PR_ELIMIT);
    EQ(api->network_put(world.ctx, all, UINT32_MAX), PR_ELIMIT);
    EQ(api->profile_put(world.ctx, &profile, &id), PR_OK);
    /* Host 0 has said 10.0.0.1 alone, host 1 nothing. */
    static const uint32_t reasons[] = {PR_R_NO_ADDRESS, PR_R_NOT_REPORTED};
    for (uint32_t host = 0; host < 2; host++) {
        trying("host %u", host);
        pr_txn txn;
        pr_want want = {.job = 50, .profile = id, .host = host};
        pr_need ask = {.profile = id};
        pr_grant grant;
        pr_why why[4];
        uint16_t numbers[2];
        uint64_t word = 0;
        EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
        EQ(api->feasible(txn, &ask, NULL, &word, NULL, 1), 0);
        EQ(api->explain(txn, &ask, host, why, 4, &n), PR_OK);
        CHECK(n > 0 && why[0].reason == reasons[host]);
        EQ(api->reserve(txn, 0, &want, 1, &grant, numbers, 2, &need), PR_ENOPORT);
        EQ(grant.reason, reasons[host]);
        EQ(api->abort_(txn), PR_OK);
    }
    /* 256 addresses, the last of which is the only one of its family. */
    static pr_addr many[257];
    for (uint32_t at = 0; at < 257; at++) many[at] = (pr_addr){.ip = {10, 0, 1, (uint8_t)at}, .family = 4, .pref = at};
    many[255] = (pr_addr){.ip = {0x20, 1, 0xd, 0xb8}, .family = 6, .pref = UINT32_MAX};
    EQ(api->report_addr(world.ctx, 1, 10, guarded_copy(0, many, sizeof many), 257), PR_ELIMIT);
    EQ(api->report_addr(world.ctx, 1, 10, guarded_copy(0, many, 256 * sizeof *many), 256), PR_OK);
    pr_want want = {.job = 50, .profile = id, .host = 1};
    uint16_t numbers[2];
    hold(world.ctx, &want, numbers, 2);
    uint64_t next, revision;
    EQ(api->pump(world.ctx, 0, &next), PR_OK);
    pr_endpoint listed[2];
    EQ(api->resolve(world.ctx, text("net.alice"), text(""), PR_RESOLVE_ALL, listed, 2, &n, &revision), PR_OK);
    EQ(n, 2);
    EQ(listed[0].family, 4);
    EQ(listed[1].family, 6);
    /* The name stands for another prefix: what is held stays, and has no address any more. */
    all[1].prefix = 128;
    EQ(api->network_put(world.ctx, &all[1], 1), PR_OK);
    EQ(api->resolve(world.ctx, text("net.alice"), text(""), PR_RESOLVE_ALL, listed, 2, &n, &revision), PR_OK);
    for (uint32_t at = 0; at < n && n <= 2; at++) CHECK(listed[at].family == 4 || listed[at].family == 0);
    pr_stats stats = stats_of(world.ctx);
    EQ(stats.allocs, 2);
    EQ(stats.poisoned, 0);
    end_world(&world);
}

/* Records that contradict each other, themselves or their profile. */
static void records_are_believed_one_by_one(void) {
    struct world world = make_world(RESTORING);
    const uint16_t numbers[] = {20000, 0, 20001, 8080, 65535};
    const pr_rec good = {.who = {.job = 1, .profile = world.profile}, .n_ports = 1, .state = PR_P_HELD};
    pr_grant grants[4];
    pr_rec recs[4] = {good, good, good, good};
    recs[1].who.job = 2; /* the same number */
    recs[2].who.job = 1; /* the same key */
    recs[3].who.job = 4, recs[3].port_off = 1; /* the number 0 */
    EQ(api->restore_put(world.ctx, recs, 4, numbers, 5, grants), PR_EEXIST);
    EQ(grants[0].rc, PR_OK);
    EQ(grants[1].rc, PR_OK);
    EQ(grants[2].rc, PR_EEXIST);
    EQ(grants[3].rc, PR_EINVAL);
    EQ(grants[3].id, 0);
    struct {
        const char *what;
        pr_rec rec;
        int32_t code;
    } wrong[] = {
        {"a port beyond the last", good, PR_EINVAL}, {"an offset that wraps", good, PR_EINVAL}, {"no ports", good, PR_EINVAL}, {"two ports", good, PR_EINVAL},
        {"a free state", good, PR_EINVAL},           {"no state", good, PR_EINVAL},             {"a foreign one", good, PR_EINVAL}, {"an unknown host", good, PR_ENOENT},
        {"an unknown profile", good, PR_ENOENT},     {"no readiness", good, PR_EINVAL},         {"an unknown flag", good, PR_EINVAL}, {"an unknown flag of the key", good, PR_EINVAL},
    };
    wrong[0].rec.port_off = 5, wrong[1].rec.port_off = UINT32_MAX, wrong[2].rec.n_ports = 0, wrong[3].rec.n_ports = 2;
    wrong[4].rec.state = PR_P_FREE, wrong[5].rec.state = 99, wrong[6].rec.state = PR_P_FOREIGN, wrong[7].rec.who.host = 50;
    wrong[8].rec.who.profile = 999, wrong[9].rec.ready = 99, wrong[10].rec.flags = 8, wrong[11].rec.who.flags = 1u << 31;
    for (unsigned at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        trying("%s", wrong[at].what);
        wrong[at].rec.who.job = 100 + at;
        EQ(api->restore_put(world.ctx, &wrong[at].rec, 1, guarded_copy(1, numbers, sizeof numbers), 5, grants), wrong[at].code);
        EQ(grants[0].rc, wrong[at].code);
    }
    /* The last number, and keys at their ends. */
    pr_rec last = good;
    last.who = (pr_want){.job = UINT64_MAX, .step = PR_ANY - 1, .replica = PR_ANY - 1, .incarnation = PR_ANY - 1, .profile = world.profile};
    last.port_off = 4, last.seq = UINT64_MAX, last.run = last.restarts = UINT32_MAX, last.ready = PR_E_READY;
    EQ(api->restore_put(world.ctx, &last, 1, numbers, 5, grants), PR_OK);
    pr_stats stats = stats_of(world.ctx);
    EQ(stats.allocs, 3);
    uint32_t conflicts = 77, need;
    EQ(api->restore_end(world.ctx, 0, 0, &conflicts), PR_OK);
    EQ(conflicts, 2);
    pr_rec rec;
    uint16_t port;
    pr_alloc found;
    EQ(api->grant_find(world.ctx, &last.who, &found), PR_OK);
    EQ(api->grant_get(world.ctx, found, &rec, &port, 1, &need), PR_OK);
    EQ(port, 65535);
    EQ(rec.seq == UINT64_MAX && rec.run == UINT32_MAX, 1);
    /* A report that was late before the restart is late after it; the last one confirms, once; nothing is newer than the newest. */
    pr_ready ready = {.id = found, .seq = UINT64_MAX - 1, .run = UINT32_MAX, .state = PR_E_NOT_READY};
    EQ(api->report_ready(world.ctx, &ready, 1, NULL), PR_ESTALE);
    ready.seq = UINT64_MAX, ready.run--;
    EQ(api->report_ready(world.ctx, &ready, 1, NULL), PR_ESTALE);
    ready.run++, ready.state = PR_E_READY;
    EQ(api->report_ready(world.ctx, &ready, 1, NULL), PR_OK);
    EQ(api->report_ready(world.ctx, &ready, 1, NULL), PR_ESTALE);
    /* A higher incarnation, the highest there is; no lower one after it. */
    EQ(api->restore_put(world.ctx, &last, 1, numbers, 5, grants), PR_ESTATE);
    pr_txn txn;
    uint64_t number;
    EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
    pr_want want = last.who;
    want.incarnation = PR_ANY;
    int32_t code = api->reserve(txn, 0, &want, 1, grants, &port, 1, &need);
    CHECK(code == PR_OK || code == PR_EINVAL);
    if (code == PR_OK) {
        want.incarnation = PR_ANY - 2;
        EQ(api->reserve(txn, 0, &want, 1, grants + 1, &port, 1, &need), PR_ESTALE);
        want.incarnation = PR_ANY;
        EQ(api->reserve(txn, 0, &want, 1, grants + 1, &port, 1, &need), PR_EEXIST);
        EQ(api->grant_find(world.ctx, &want, &found), PR_OK);
        CHECK(found == grants[0].id);
    }
    EQ(api->commit(txn, &number), PR_OK);
    end_world(&world);
}

/* A gang that wants one host twice, or the same key, or nothing. */
static void a_gang_of_the_same_takes_nothing(void) {
    static const uint32_t flags[] = {PR_RESERVE_ALL, PR_RESERVE_SAME, PR_RESERVE_ALL | PR_RESERVE_SAME};
    for (unsigned f = 0; f < 3; f++) {
        trying("flags %u", flags[f]);
        struct world world = make_world(IN_TXN);
        pr_stats was = stats_of(world.ctx);
        pr_want wants[3];
        pr_grant grants[3];
        uint16_t numbers[3];
        uint32_t need = 77;
        for (uint32_t at = 0; at < 3; at++) wants[at] = (pr_want){.job = 8, .replica = at, .profile = world.profile, .host = at % 2};
        int32_t code = api->reserve(world.txn, flags[f], wants, 3, grants, numbers, 3, &need);
        if (flags[f] == PR_RESERVE_ALL) {
            EQ(code, PR_OK);
            EQ(api->rollback(world.txn, world.mark), PR_OK);
        } else EQ(code, PR_EINVAL);
        wants[2] = wants[0]; /* one key twice */
        code = api->reserve(world.txn, flags[f], wants, 3, grants, numbers, 3, &need);
        if (flags[f] == PR_RESERVE_ALL) {
            CHECK(code == PR_OK || code == PR_EEXIST);
            CHECK(code != PR_OK || grants[2].id == grants[0].id);
            EQ(api->rollback(world.txn, world.mark), PR_OK);
        } else CHECK(code < 0);
        code = api->reserve(world.txn, flags[f], NULL, 0, NULL, NULL, 0, &need);
        CHECK(code == PR_OK || code == PR_EINVAL);
        pr_stats is = stats_of(world.ctx);
        CHECK(same_state(&was, &is));
        end_world(&world);
    }
}

const struct test bounds_tests[] = {
    {"each_size_is_taken_or_refused", each_size_is_taken_or_refused},
    {"arguments_may_lie_over_each_other", arguments_may_lie_over_each_other},
    {"candidates_over_the_answer", candidates_over_the_answer},
    {"the_last_moment_is_one_like_others", the_last_moment_is_one_like_others},
    {"one_of_everything_is_enough", one_of_everything_is_enough},
    {"a_maximum_at_its_bound_is_made_or_there_is_no_memory", a_maximum_at_its_bound_is_made_or_there_is_no_memory},
    {"so_many_ranges_and_no_more", so_many_ranges_and_no_more},
    {"networks_at_their_ends", networks_at_their_ends},
    {"records_are_believed_one_by_one", records_are_believed_one_by_one},
    {"a_gang_of_the_same_takes_nothing", a_gang_of_the_same_takes_nothing},
    {NULL, NULL},
};
