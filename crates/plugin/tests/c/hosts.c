/* Hosts by the hundred thousand, full ones, and the words in which they are named. */
#include <unistd.h>
#include "test.h"

/* How much memory of ours is in use, in bytes. */
static uint64_t resident(void) {
    unsigned long all = 0, here = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu %lu", &all, &here) == 2);
    if (file != NULL) fclose(file);
    return (uint64_t)here * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int is_set(const uint64_t *words, uint32_t host) {
    return words[host / 64] >> host % 64 & 1;
}

/* abi 15: sparse. 200,000 hosts with PORTREEVE_LONG; a plugin with debug checks needs most of a millisecond for each. */
static void hosts_without_number_cost_little_until_they_are_used(void) {
    const uint32_t n = rounds(getenv("PORTREEVE_LONG") != NULL ? 200000 : 2000), nwords = (n + 63) / 64;
    pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = n, .max_allocs = 1024, .max_ports = 1024};
    uint64_t before = resident();
    pr_ctx ctx = make(&config);
    static const pr_range all = {1, 65535};
    char (*names)[12] = calloc(n, sizeof *names);
    pr_host *hosts = calloc(n, sizeof *hosts);
    if (names == NULL || hosts == NULL) abort();
    for (uint32_t at = 0; at < n; at++) {
        snprintf(names[at], sizeof names[at], "n%u", at);
        hosts[at] = (pr_host){.size = sizeof *hosts, .host = at, .name = text(names[at]), .dynamic = &all, .fixed = &all, .n_dynamic = 1, .n_fixed = 1};
    }
    EQ(api->host_put(ctx, hosts, n), PR_OK);
    pr_stats stats = stats_of(ctx);
    EQ(stats.hosts, n);
    EQ(stats.ports_total, 65535ull * n);
    uint64_t grown = resident() - before;
    /* A kilobyte or two each: none has a list of its 131,070 numbers. The arrays above and names are in it. */
    CHECK(grown < 2048ull * n + (64 << 20));
    if (stats.bytes != 0) CHECK(stats.bytes < 2048ull * n + (64 << 20));
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    pr_need need = {.profile = put_profile(ctx, "web.alice", &http, 1)};
    uint64_t *words = calloc(nwords, sizeof *words);
    if (words == NULL) abort();
    pr_txn txn;
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    EQ(api->feasible(txn, &need, NULL, words, NULL, nwords), n);
    for (uint32_t at = 0; at < nwords * 64; at++) CHECK(is_set(words, at) == (at < n));
    EQ(api->abort_(txn), PR_OK);
    /* One more is one too many, wherever it shall stand. */
    pr_host more = {.size = sizeof more, .host = n, .name = text("more")};
    EQ(api->host_put(ctx, &more, 1), PR_ELIMIT);
    more.host = 0xffffffff;
    EQ(api->host_put(ctx, &more, 1), PR_ELIMIT);
    EQ(api->destroy(ctx), PR_OK);
    free(words);
    free(hosts);
    free(names);
}

/* abi 15: full. Every number of both sides of a host, in blocks and single, held, listed, and given back. */
static void a_host_can_be_full_to_its_last_number(void) {
    enum { BLOCK = 256, BLOCKS = 255, SINGLES = 255, GRANTS = BLOCKS + SINGLES };
    static const pr_range all = {1, 65535};
    pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = 2, .max_allocs = GRANTS + 1, .max_ports = 1 << 17};
    pr_ctx ctx = make(&config);
    pr_host host = {.size = sizeof host, .name = text("full"), .dynamic = &all, .n_dynamic = 1, .flags = PR_HOST_LOWEST};
    EQ(api->host_put(ctx, &host, 1), PR_OK);
    pr_port block = {.name = text("block"), .count = BLOCK, .proto = PR_TCP_UDP}, single = {.name = text("one"), .proto = PR_TCP_UDP};
    uint32_t blocks = put_profile(ctx, "block.alice", &block, 1), singles = put_profile(ctx, "one.alice", &single, 1);
    static pr_want wants[GRANTS];
    static pr_grant grants[GRANTS];
    static uint16_t numbers[65535];
    static unsigned char seen[65536];
    uint32_t need;
    uint64_t number, next;
    pr_txn txn;
    for (uint32_t at = 0; at < GRANTS; at++) wants[at] = (pr_want){.job = at, .profile = at < BLOCKS ? blocks : singles};
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    EQ(api->reserve(txn, PR_RESERVE_ALL, wants, GRANTS, grants, numbers, 65535, &need), PR_OK);
    EQ(need, 65535);
    memset(seen, 0, sizeof seen);
    for (uint32_t at = 0; at < need; at++) {
        CHECK(numbers[at] != 0 && !seen[numbers[at]]);
        seen[numbers[at]] = 1;
    }
    EQ(api->commit(txn, &number), PR_OK);
    EQ(stats_of(ctx).ports_total, 65535);
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    pr_need ask = {.profile = singles};
    uint64_t fits;
    EQ(api->feasible(txn, &ask, NULL, &fits, NULL, 1), 0);
    pr_why why[4];
    EQ(api->explain(txn, &ask, 0, why, 4, &need), PR_OK);
    EQ(why[0].reason, PR_R_TOO_FEW);
    EQ(why[0].have, 0);
    /* Its holders, seven at a time: every number on each side once, ascending. */
    uint32_t cursor = 0, n = 0, last = 0, sum = 0, calls = 0;
    do {
        pr_held *held = guarded(0, 7 * sizeof *held);
        EQ(api->holders(txn, 0, &cursor, held, 7, &n), PR_OK);
        for (uint32_t at = 0; at < n; at++) {
            CHECK(held[at].lo >= last && held[at].hi >= held[at].lo && held[at].id != 0);
            last = held[at].lo;
            sum += (uint32_t)(held[at].hi - held[at].lo + 1) * (held[at].proto == PR_TCP_UDP ? 2 : 1);
        }
    } while (n > 0 && ++calls < 100000);
    EQ(sum, 2 * 65535);
    EQ(api->abort_(txn), PR_OK);
    pr_want one_more = {.job = 9999, .profile = singles};
    uint16_t more;
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    EQ(api->reserve(txn, 0, &one_more, 1, grants, &more, 1, &need), PR_ENOPORT);
    EQ(grants[0].reason, PR_R_TOO_FEW);
    EQ(api->abort_(txn), PR_OK);
    for (uint32_t at = 0; at < GRANTS; at++) EQ(api->release_job(ctx, at, PR_ANY, 1, 1000, &need), PR_OK);
    EQ(api->pump(ctx, 1000, &next), PR_OK);
    EQ(api->pump(ctx, next, &next), PR_OK);
    EQ(next, PR_NEVER);
    pr_stats stats = stats_of(ctx);
    EQ(stats.ports_used, 0);
    EQ(stats.ports_cooling, 0);
    EQ(stats.allocs, 0);
    EQ(api->destroy(ctx), PR_OK);
}

/* abi 16 */
static void words_of_hosts_may_be_more_or_fewer_than_there_are_hosts(void) {
    enum { HOSTS = 130, WORDS = 3 };
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    config.max_hosts = HOSTS;
    pr_ctx ctx = make(&config);
    put_hosts(ctx, HOSTS);
    pr_port http = {.name = text("http"), .fixed = 8080, .proto = PR_TCP};
    pr_need need = {.profile = put_profile(ctx, "web.alice", &http, 1)};
    /* Of each three, the first is taken. */
    for (uint32_t host = 0; host < HOSTS; host += 3) {
        pr_want want = {.job = host, .profile = need.profile, .host = host};
        uint16_t number;
        if (host / 3 < MOST) hold(ctx, &want, &number, 1);
    }
    pr_txn txn;
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    for (uint32_t nwords = 0; nwords <= 70; nwords++) {
        for (int some = 0; some < 3; some++) {
            trying("%u words, candidates %d", nwords, some);
            uint64_t *cand = guarded(0, nwords * sizeof *cand), *out = some == 2 ? cand : guarded(1, nwords * sizeof *out);
            uint16_t *most = guarded(2, (size_t)nwords * 64 * sizeof *most);
            /* Bits past the last host are set too: they are ignored. */
            if (some > 0) memset(cand, 0x99, nwords * sizeof *cand);
            int64_t count = api->feasible(txn, &need, some == 0 ? NULL : cand, nwords == 0 ? NULL : out, most, nwords), set = 0;
            for (uint32_t host = 0; host < nwords * 64; host++) {
                int wanted = some == 0 || 0x99 >> host % 8 & 1;
                int fits = wanted && host < HOSTS && host % 3 != 0;
                CHECK(is_set(out, host) == fits);
                CHECK(most[host] == fits);
                set += fits;
            }
            /* Only what is set is counted: what is beyond the words was not asked for. */
            if (some != 0 || nwords >= WORDS) EQ(count, set);
            else CHECK(count == set);
            uint32_t by_reason[16], sum = 0;
            if (some == 1) {
                memset(cand, 0x99, nwords * sizeof *cand);
                EQ(api->explain_all(txn, &need, cand, nwords, by_reason, 16), PR_OK);
                for (int reason = 0; reason < 16; reason++) sum += by_reason[reason];
                uint32_t wanted = 0;
                for (uint32_t host = 0; host < nwords * 64 && host < HOSTS; host++) wanted += 0x99 >> host % 8 & 1;
                EQ(sum, wanted - set);
                EQ(by_reason[PR_R_HELD], sum);
            }
        }
    }
    uint64_t word;
    EQ(api->feasible(txn, &need, NULL, &word, NULL, (1 << 14) + 1), PR_ELIMIT);
    EQ(api->abort_(txn), PR_OK);
    EQ(api->destroy(ctx), PR_OK);
}

/* abi 16 */
static void an_index_beyond_the_last_host_is_nobody(void) {
    static const uint32_t beyond[] = {2, 63, 64, 65, 1 << 20, 0x7fffffff, 0xfffffffe, 0xffffffff};
    struct world world = make_world(IDLE);
    for (size_t at = 0; at < sizeof beyond / sizeof *beyond; at++) {
        const uint32_t host = beyond[at];
        trying("host %u", host);
        pr_addr address = {.ip = {10, 0, 0, 9}, .family = 4};
        EQ(api->host_state(world.ctx, host, PR_HOST_UP), PR_ENOENT);
        EQ(api->report_addr(world.ctx, host, 1000, &address, 1), PR_ENOENT);
        EQ(api->report_foreign(world.ctx, host, 1000, NULL, 0), PR_ENOENT);
        EQ(api->host_remove(world.ctx, host, 0), PR_ENOENT);
        EQ(api->host_remove(world.ctx, host, PR_REMOVE_FORCE), PR_ENOENT);
        pr_want want = {.job = 50, .profile = world.profile, .host = host};
        if (host != PR_ANY) EQ(api->wait_put(world.ctx, &want, 1, NULL), PR_ENOENT);
        pr_txn txn;
        pr_grant grant;
        pr_held held;
        uint16_t number;
        uint32_t need, cursor = 0;
        EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
        EQ(api->reserve(txn, 0, &want, 1, &grant, &number, 1, &need), PR_ENOENT);
        EQ(grant.rc, PR_ENOENT);
        EQ(grant.reason, PR_R_UNKNOWN_HOST);
        EQ(api->holders(txn, host, &cursor, &held, 1, &need), PR_ENOENT);
        EQ(api->abort_(txn), PR_OK);
        if (host < MOST) continue;
        pr_host more = {.size = sizeof more, .host = host, .name = text("more")};
        EQ(api->host_put(world.ctx, &more, 1), PR_ELIMIT);
    }
    EQ(stats_of(world.ctx).hosts, 2);
    end_world(&world);
}

/* Words of hosts as they change places, all or none. */
static void hosts_change_places_with_their_holders(void) {
    struct world world = make_world(IDLE);
    pr_host swapped[2] = {{.size = sizeof *swapped, .host = 1, .name = text("n0")}, {.size = sizeof *swapped, .host = 0, .name = text("n1")}};
    pr_rec rec;
    uint16_t number;
    uint32_t need;
    EQ(api->grant_get(world.ctx, world.held, &rec, &number, 1, &need), PR_OK);
    EQ(rec.who.host, 0);
    /* Only one of the two: its place is still used. */
    EQ(api->host_put(world.ctx, &swapped[1], 1), PR_EBUSY);
    EQ(api->host_put(world.ctx, swapped, 2), PR_OK);
    EQ(api->grant_get(world.ctx, world.held, &rec, &number, 1, &need), PR_OK);
    EQ(rec.who.host, 1);
    EQ(number, world.number);
    /* One name, or one place, twice. */
    pr_host twice[2] = {{.size = sizeof *twice, .host = 7, .name = text("x")}, {.size = sizeof *twice, .host = 8, .name = text("x")}};
    EQ(api->host_put(world.ctx, twice, 2), PR_EINVAL);
    twice[1] = (pr_host){.size = sizeof *twice, .host = 7, .name = text("y")};
    EQ(api->host_put(world.ctx, twice, 2), PR_EINVAL);
    EQ(api->host_remove(world.ctx, 1, 0), PR_EBUSY);
    EQ(api->host_remove(world.ctx, 1, PR_REMOVE_FORCE), PR_OK);
    EQ(api->grant_get(world.ctx, world.held, &rec, &number, 1, &need), PR_ESTALE);
    pr_stats stats = stats_of(world.ctx);
    EQ(stats.hosts, 1);
    EQ(stats.allocs, 0);
    EQ(stats.ports_used, 0);
    end_world(&world);
}

/* While a transaction is open nothing is put, removed or dropped, and a second one waits for nobody. */
static void control_is_busy_while_a_transaction_is_open(void) {
    struct world world = make_world(IN_TXN);
    pr_host host = {.size = sizeof host, .host = 5, .name = text("n5")};
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    pr_profile profile = {.size = sizeof profile, .service = text("db.alice"), .ports = &http, .n_ports = 1, .port_size = sizeof http};
    uint32_t id, conflicts;
    pr_txn txn = 77;
    pr_stats was = stats_of(world.ctx);
    EQ(api->host_put(world.ctx, &host, 1), PR_EBUSY);
    EQ(api->host_remove(world.ctx, 1, 0), PR_EBUSY);
    EQ(api->profile_put(world.ctx, &profile, &id), PR_EBUSY);
    EQ(api->profile_drop(world.ctx, world.profile), PR_EBUSY);
    EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_EBUSY);
    EQ(api->txn_begin(world.ctx, PR_TXN_WHATIF, 0, &txn), PR_EBUSY);
    int32_t code = api->restore_end(world.ctx, 0, 0, &conflicts);
    CHECK(code == PR_EBUSY || code == PR_ESTATE);
    EQ(txn, 77);
    pr_stats is = stats_of(world.ctx);
    CHECK(same_state(&was, &is));
    CHECK(is.busy - was.busy >= 6);
    EQ(api->abort_(world.txn), PR_OK);
    end_world(&world);
}

const struct test hosts_tests[] = {
    {"hosts_without_number_cost_little_until_they_are_used", hosts_without_number_cost_little_until_they_are_used},
    {"a_host_can_be_full_to_its_last_number", a_host_can_be_full_to_its_last_number},
    {"words_of_hosts_may_be_more_or_fewer_than_there_are_hosts", words_of_hosts_may_be_more_or_fewer_than_there_are_hosts},
    {"an_index_beyond_the_last_host_is_nobody", an_index_beyond_the_last_host_is_nobody},
    {"hosts_change_places_with_their_holders", hosts_change_places_with_their_holders},
    {"control_is_busy_while_a_transaction_is_open", control_is_busy_while_a_transaction_is_open},
    {NULL, NULL},
};
