/* feasible against asking each host: in many random states it says yes exactly where explain finds no cause, as many replicas fit as can
 * be reserved one after the other, and explain_all counts what explain says first. Inside transactions and what-ifs.
 *
 *   brute_force PLUGIN STATES [SEED]
 */
#include "host.h"

enum { HOSTS = 6, PROFILES = 8, GRANTS = 256, NUMBERS = 24, ROUNDS_OF_A_CONTEXT = 40 };

static uint64_t dice;
static pr_ctx ctx;
static uint64_t now, job, seq;
static uint32_t profiles[PROFILES], n_profiles;
static int with_block[PROFILES];
static pr_alloc grants[GRANTS];
static uint32_t n_grants;
static int networks;

static int one_in(uint32_t n) { return below(&dice, n) == 0; }

static pr_range some_range(void) {
    const uint16_t lo = (uint16_t)(20000 + below(&dice, NUMBERS));
    const pr_range range = {lo, (uint16_t)(lo + below(&dice, NUMBERS))};
    return range;
}

static void put_host(uint32_t h) {
    char name[16];
    snprintf(name, sizeof name, "n%u", h);
    const pr_range dynamic[2] = {some_range(), some_range()}, fixed = {9000, 20100}, reserved = some_range();
    pr_host host = {.size = sizeof host, .host = h, .name = str(name), .dynamic = dynamic, .fixed = &fixed, .reserved = &reserved, .n_dynamic = 1 + below(&dice, 2)};
    host.n_fixed = below(&dice, 2);
    host.n_reserved = one_in(4) ? 1 : 0;
    host.flags = below(&dice, 3) == 0 ? PR_HOST_LOWEST : 0;
    OK(api->host_put(ctx, &host, 1));
}

static void put_profile(void) {
    static const char *const names[] = {"a", "b", "c", "d", "e"}, *const services[] = {"web.alice", "rpc.alice", "web.bob"};
    pr_port ports[5];
    pr_range within[5];
    const uint32_t n = 1 + below(&dice, 4);
    const int blocks = one_in(3);
    memset(ports, 0, sizeof ports);
    for (uint32_t p = 0; p < n; p++) {
        ports[p].name = str(names[p]);
        ports[p].proto = 1 + below(&dice, 3);
        if (one_in(3)) {
            ports[p].fixed = (uint16_t)(one_in(5) ? 9000 + below(&dice, 3) : 20000 + below(&dice, NUMBERS));
        } else if (blocks && one_in(2)) {
            ports[p].count = (uint16_t)(2 + below(&dice, 3));
        }
        if (ports[p].fixed == 0 && one_in(4)) {
            within[p] = some_range();
            ports[p].within = &within[p];
            ports[p].n_within = 1;
        }
        if (networks && one_in(6)) ports[p].network = str("data");
    }
    pr_profile profile = {.size = sizeof profile, .name = str("p"), .service = str(services[below(&dice, 3)]), .ports = ports, .n_ports = n, .port_size = sizeof ports[0]};
    const int32_t code = api->profile_put(ctx, &profile, &profiles[n_profiles]);
    if (code == PR_EINVAL) return; /* one number twice */
    OK(code);
    int any_block = 0;
    for (uint32_t p = 0; p < n; p++) any_block |= ports[p].count > 1;
    with_block[n_profiles++] = any_block;
}

static void begin(void) {
    const pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = HOSTS, .max_allocs = 2048, .max_ports = 4096, .max_waits = 64, .cool_ms = 5000,
                              .foreign_rest_ms = 7000, .seed = dice};
    OK(api->create(&config, &ctx));
    now = 1000;
    n_grants = 0;
    n_profiles = 0;
    const pr_network data = {.size = sizeof data, .name = str("data"), .ip = {10}, .family = 4, .prefix = 8};
    networks = api->network_put(ctx, &data, 1) == PR_OK;
    for (uint32_t h = 0; h < HOSTS; h++) put_host(h);
    while (n_profiles < PROFILES) put_profile();
}

static pr_want some_want(void) {
    const pr_want want = {.job = ++job, .profile = profiles[below(&dice, PROFILES)], .host = below(&dice, HOSTS)};
    return want;
}

static pr_grant granted[1];
static uint16_t ports[256];
static uint32_t need;

static int32_t take(pr_txn txn, pr_want want) { return api->reserve(txn, 0, &want, 1, granted, ports, 256, &need); }

/* Something happens between two cycles. */
static void happen(void) {
    pr_txn txn;
    uint64_t no, next;
    int32_t rc;
    switch (below(&dice, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        OK(api->txn_begin(ctx, 0, now, &txn));
        for (uint32_t i = below(&dice, 6); i > 0; i--)
            if (take(txn, some_want()) == PR_OK && n_grants < GRANTS) grants[n_grants++] = granted[0].id;
        OK(api->commit(txn, &no));
        break;
    case 4:
    case 5:
    case 6:
        if (n_grants > 0) {
            const uint32_t which = below(&dice, n_grants);
            if (one_in(3)) {
                rc = api->release_begin(ctx, &grants[which], 1, 0, NULL);
                CHECK(rc == PR_OK || rc == PR_ESTATE);
            } else {
                OK(api->release_confirm(ctx, &grants[which], 1, one_in(4) ? PR_REL_NO_COOL : 0, now, NULL));
                grants[which] = grants[--n_grants];
            }
        }
        break;
    case 7: {
        const pr_range range = some_range();
        const pr_foreign foreign = {.lo = range.lo, .hi = range.hi, .proto = 1 + below(&dice, 3), .pid = 811, .comm = "nginx"};
        OK(api->report_foreign(ctx, below(&dice, HOSTS), ++seq, &foreign, below(&dice, 2)));
        break;
    }
    case 8:
        OK(api->host_state(ctx, below(&dice, HOSTS), one_in(2) ? PR_HOST_UP : below(&dice, 4)));
        break;
    case 9: {
        pr_want want = some_want();
        if (one_in(2)) want.host = PR_ANY;
        rc = api->wait_put(ctx, &want, 1, NULL);
        CHECK(rc == PR_OK || rc == PR_ELIMIT);
        break;
    }
    case 10: {
        const uint32_t h = below(&dice, HOSTS);
        const pr_addr address = {.ip = {(uint8_t)(one_in(3) ? 10 : 11), 0, 0, 1}, .family = 4};
        if (one_in(3)) put_host(h);
        OK(api->report_addr(ctx, h, ++seq, &address, below(&dice, 2)));
        break;
    }
    default:
        now += below(&dice, 4000);
        OK(api->pump(ctx, now, &next));
    }
}

/* How many replicas go onto a host one after the other; at most 40. */
static uint32_t fit_by_hand(pr_txn txn, uint32_t profile, uint32_t host) {
    uint32_t mark, n = 0;
    OK(api->mark(txn, &mark));
    for (; n < 40; n++) {
        const pr_want want = {.job = ++job, .profile = profile, .host = host};
        const int32_t code = take(txn, want);
        if (code == PR_ENOPORT) break;
        OK(code);
    }
    OK(api->rollback(txn, mark));
    return n;
}

static uint64_t asked, fitted, by_reason[16];

static void compare(pr_txn txn) {
    const uint32_t which = below(&dice, PROFILES);
    pr_need asks = {.profile = profiles[which], .replicas = one_in(3) ? 1 + below(&dice, 4) : below(&dice, 2)};
    if (one_in(3)) asks.at_ms = now + below(&dice, 9000);
    const uint64_t cand = one_in(2) ? ~0ull : chance(&dice);
    uint64_t fits = ~0ull;
    uint16_t most[64];
    uint32_t sums[16], first[16] = {0};
    pr_why why[64];
    const int64_t count = api->feasible(txn, &asks, cand == ~0ull ? NULL : &cand, &fits, most, 1);
    CHECK_EQ(count, __builtin_popcountll(fits));
    CHECK_EQ(fits >> HOSTS, 0);
    OK(api->explain_all(txn, &asks, &cand, 1, sums, 16));
    for (uint32_t h = 0; h < HOSTS; h++) {
        const int fit = (int)(fits >> h & 1);
        if ((cand >> h & 1) == 0) {
            CHECK_EQ(fit, 0);
            continue;
        }
        OK(api->explain(txn, &asks, h, why, 64, &need));
        asked++;
        fitted += (uint64_t)fit;
        CHECK_EQ(fit, need == 0);
        CHECK_EQ(most[h] > 0, fit);
        if (need > 0) first[why[0].reason]++;
        if (fit) CHECK(most[h] >= (asks.replicas == 0 ? 1 : asks.replicas) || with_block[which]);
        if (asks.at_ms == 0 && one_in(3)) {
            const uint32_t by_hand = fit_by_hand(txn, asks.profile, h), at_once = asks.replicas == 0 ? 1 : asks.replicas;
            if (!with_block[which] || by_hand == 0) CHECK_EQ(fit, by_hand >= at_once);
            if (fit && !with_block[which] && by_hand < 40) CHECK_EQ(most[h], by_hand);
            if (fit) CHECK(most[h] <= by_hand || by_hand == 40);
        }
    }
    for (uint32_t r = 0; r < 16; r++) {
        CHECK_EQ(sums[r], first[r]);
        by_reason[r] += sums[r];
    }
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    const uint64_t states = strtoull(argv[2], NULL, 10), seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 20260101;
    load_plugin(argv[1]);
    for (uint64_t state = 0; state < states; state++) {
        /* Each state from its own number: the printed one alone repeats a failure. */
        if (state % ROUNDS_OF_A_CONTEXT == 0) {
            if (state > 0) OK(api->destroy(ctx));
            dice = (seed + state) * 0x9e3779b97f4a7c15ull | 1;
            fprintf(stderr, "%sseed %llu", state > 0 ? "\r" : "", (unsigned long long)(seed + state));
            begin();
        }
        for (uint32_t i = 1 + below(&dice, 4); i > 0; i--) happen();
        pr_txn txn;
        const int what_if = one_in(3);
        OK(api->txn_begin(ctx, what_if ? PR_TXN_WHATIF : 0, now, &txn));
        for (uint32_t i = below(&dice, 3); i > 0; i--) (void)take(txn, some_want());
        if (what_if && n_grants > 0)
            for (uint32_t i = below(&dice, 3); i > 0; i--) {
                const int32_t code = api->give(txn, &grants[below(&dice, n_grants)], 1, NULL);
                CHECK(code == PR_OK || code == PR_ESTALE);
            }
        compare(txn);
        compare(txn);
        OK(api->abort_(txn));
    }
    OK(api->destroy(ctx));
    fprintf(stderr, "\r");
    printf("%llu states from seed %llu: %llu hosts asked, %llu fit\n", (unsigned long long)states, (unsigned long long)seed, (unsigned long long)asked,
           (unsigned long long)fitted);
    for (uint32_t r = 1; r < 16; r++) printf("%s %llu\n", api->reason_(r), (unsigned long long)by_reason[r]);
    return 0;
}
