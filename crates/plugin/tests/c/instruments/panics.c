/* A defect of ours in every call, at each of its places in turn: the call answers PR_EPOISON, its context answers only what the contract
 * says, others are unhurt, and what was held comes back into a new one. Built against a plugin with the test-only feature.
 *
 *   panics PLUGIN
 */
#include "host.h"

static uint32_t (*panic_at)(uint32_t);

/* What the log was told since it was asked last. */
static int told;
static void log_told(void *ud, int32_t level, int32_t code, const char *words, uint64_t n) {
    (void)ud;
    if (level == 3 && code == PR_EPOISON && n > 0 && words != NULL) told++;
}

enum { RESTORING, IDLE, CYCLE, TRIAL };
typedef struct world {
    pr_ctx ctx;
    pr_txn txn;
    pr_alloc held;
    pr_snap snap;
    pr_watch watch;
    pr_sup sup;
    uint32_t profile, mark;
    uint16_t number;
} world;

static pr_want want(uint64_t job, uint32_t profile) {
    const pr_want made = {.job = job, .profile = profile};
    return made;
}

static world begin(int phase) {
    world w = {0};
    const pr_config config = {.size = sizeof config, .max_hosts = 4, .max_allocs = 16, .max_waits = 16, .max_profiles = 16, .max_ports = 64, .log = log_told};
    OK(api->create(&config, &w.ctx));
    const pr_host host = {.size = sizeof host, .name = str("n1")};
    OK(api->host_put(w.ctx, &host, 1));
    const pr_port port = {.name = str("http"), .proto = PR_TCP};
    const pr_profile profile = {.size = sizeof profile, .name = str("web"), .service = str("web.alice"), .ports = &port, .n_ports = 1, .port_size = sizeof port};
    OK(api->profile_put(w.ctx, &profile, &w.profile));
    if (phase == RESTORING) return w;
    uint32_t conflicts, need, count;
    uint64_t no, next, revision;
    OK(api->restore_end(w.ctx, 0, 0, &conflicts));
    OK(api->txn_begin(w.ctx, 0, 0, &w.txn));
    pr_grant grant;
    const pr_want first = want(1, w.profile);
    OK(api->reserve(w.txn, 0, &first, 1, &grant, &w.number, 1, &need));
    OK(api->commit(w.txn, &no));
    w.held = grant.id;
    const pr_addr address = {.ip = {10, 0, 0, 1}, .family = 4};
    OK(api->report_addr(w.ctx, 0, 1, &address, 1));
    OK(api->pump(w.ctx, 1, &next));
    int32_t fd;
    (void)api->snap_open(w.ctx, str("web.alice"), &w.snap, &revision, &count);
    (void)api->watch_open(w.ctx, str("web.alice"), 0, &w.watch, &fd);
    w.txn = 0;
    if (phase >= CYCLE) {
        OK(api->txn_begin(w.ctx, phase == TRIAL ? PR_TXN_WHATIF : 0, 2, &w.txn));
        OK(api->mark(w.txn, &w.mark));
    }
    return w;
}

/* The calls ------------------------------------------------------------------------------------------------------------------------ */

static pr_why why[8];
static pr_held held[8];
static pr_endpoint endpoints[8];
static pr_change changes[8];
static pr_rec records[8];
static uint16_t ports[64], most[64];
static uint64_t words_of[1];
static uint32_t u, v, sums[16];
static uint64_t big;
static int32_t rc, fd;
static pr_grant grant;
static pr_alloc id;
static char buf[4096];

static int64_t host_put(world *w) { pr_host h = {.size = sizeof h, .host = 1, .name = str("n2")}; return api->host_put(w->ctx, &h, 1); }
static int64_t host_remove(world *w) { return api->host_remove(w->ctx, 0, PR_REMOVE_FORCE); }
static int64_t network_put(world *w) { pr_network n = {.size = sizeof n, .name = str("data"), .ip = {10}, .family = 4, .prefix = 8}; return api->network_put(w->ctx, &n, 1); }
static int64_t profile_put(world *w) { pr_port p = {.name = str("x"), .proto = PR_UDP}; pr_profile f = {.size = sizeof f, .name = str("y"), .service = str("y.bob"), .ports = &p, .n_ports = 1, .port_size = sizeof p}; return api->profile_put(w->ctx, &f, &u); }
static int64_t profile_drop(world *w) { return api->profile_drop(w->ctx, w->profile); }
static int64_t restore_put(world *w) { pr_rec r = {.who = want(9, w->profile), .n_ports = 1, .state = PR_P_HELD}; ports[0] = 20000; return api->restore_put(w->ctx, &r, 1, ports, 1, &grant); }
static int64_t restore_end(world *w) { return api->restore_end(w->ctx, 0, 0, &u); }
static int64_t export_(world *w) { big = 0; return api->export_(w->ctx, &big, records, 8, ports, 64, &u, &v); }
static int64_t txn_begin(world *w) { return api->txn_begin(w->ctx, 0, 5, &big); }
static int64_t feasible(world *w) { pr_need n = {.profile = w->profile}; return api->feasible(w->txn, &n, NULL, words_of, most, 1); }
static int64_t explain(world *w) { pr_need n = {.profile = w->profile}; return api->explain(w->txn, &n, 0, why, 8, &u); }
static int64_t explain_all(world *w) { pr_need n = {.profile = w->profile}; return api->explain_all(w->txn, &n, NULL, 1, sums, 16); }
static int64_t reserve(world *w) { pr_want x = want(2, w->profile); return api->reserve(w->txn, 0, &x, 1, &grant, ports, 64, &u); }
static int64_t reserve_same(world *w) { pr_want x = want(2, w->profile); return api->reserve(w->txn, PR_RESERVE_ALL | PR_RESERVE_SAME, &x, 1, &grant, ports, 64, &u); }
static int64_t give(world *w) { return api->give(w->txn, &w->held, 1, &rc); }
static int64_t mark(world *w) { return api->mark(w->txn, &u); }
static int64_t rollback(world *w) { return api->rollback(w->txn, w->mark); }
static int64_t commit(world *w) { return api->commit(w->txn, &big); }
static int64_t abort_(world *w) { return api->abort_(w->txn); }
static int64_t holders(world *w) { u = 0; return api->holders(w->txn, 0, &u, held, 8, &v); }
static int64_t release_begin(world *w) { return api->release_begin(w->ctx, &w->held, 1, 0, &rc); }
static int64_t release_confirm(world *w) { return api->release_confirm(w->ctx, &w->held, 1, 0, 5, &rc); }
static int64_t release_job(world *w) { return api->release_job(w->ctx, 1, PR_ANY, 1, 5, &u); }
static int64_t grant_find(world *w) { pr_want x = want(1, 0); return api->grant_find(w->ctx, &x, &id); }
static int64_t grant_get(world *w) { return api->grant_get(w->ctx, w->held, records, ports, 64, &u); }
static int64_t env(world *w) { return api->env(w->ctx, w->held, 0, buf, sizeof buf, &u); }
static int64_t pump(world *w) { return api->pump(w->ctx, 5, &big); }
static int64_t host_state(world *w) { return api->host_state(w->ctx, 0, PR_HOST_DRAINED); }
static int64_t report_addr(world *w) { pr_addr a = {.ip = {10, 0, 0, 2}, .family = 4}; return api->report_addr(w->ctx, 0, 2, &a, 1); }
static int64_t report_foreign(world *w) { pr_foreign f = {.lo = 22, .hi = 22, .proto = PR_TCP}; return api->report_foreign(w->ctx, 0, 2, &f, 1); }
static int64_t report_conflict(world *w) { return api->report_conflict(w->ctx, w->held, w->number, PR_TCP, 0); }
static int64_t report_ready(world *w) { pr_ready r = {.id = w->held, .seq = 1, .run = 1, .state = PR_E_READY}; return api->report_ready(w->ctx, &r, 1, &rc); }
static int64_t wait_put(world *w) { pr_want x = want(3, w->profile); return api->wait_put(w->ctx, &x, 1, &rc); }
static int64_t wait_drop(world *w) { pr_want x = want(3, w->profile); return api->wait_drop(w->ctx, &x, 1, &rc); }
static int64_t wait_fd(world *w) { return api->wait_fd(w->ctx, &fd); }
static int64_t wait_next(world *w) { pr_want x; return api->wait_next(w->ctx, &x, 1, &u, &v); }
static int64_t resolve(world *w) { const pr_str all = {NULL, 0}; return api->resolve(w->ctx, str("web.alice"), all, PR_RESOLVE_ALL, endpoints, 8, &u, &big); }
static int64_t snap_open(world *w) { pr_snap s; return api->snap_open(w->ctx, str("web.alice"), &s, &big, &u); }
static int64_t snap_read(world *w) { return api->snap_read(w->snap, 0, endpoints, 8, &u); }
static int64_t snap_close(world *w) { return api->snap_close(w->snap); }
static int64_t watch_open(world *w) { pr_watch x; return api->watch_open(w->ctx, str("web.alice"), 0, &x, &fd); }
static int64_t watch_next(world *w) { return api->watch_next(w->watch, changes, 8, &u, &v); }
static int64_t watch_close(world *w) { return api->watch_close(w->watch); }
static int64_t text(world *w) { return api->text(w->ctx, PR_TEXT_HOST, 0, buf, sizeof buf, &u); }

enum class { C = 1, H = 2, R = 4, A = 8 };
typedef struct call {
    const char *name;
    int64_t (*call)(world *);
    enum class class;
    int phase;
} call;
#define CALL(name, class, phase) {#name, name, class, phase}
static const call calls[] = {
    CALL(host_put, C, IDLE), CALL(host_remove, C, IDLE), CALL(network_put, C, IDLE), CALL(profile_put, C, IDLE), CALL(profile_drop, C, IDLE),
    CALL(restore_put, C, RESTORING), CALL(restore_end, C, RESTORING), CALL(export_, C, IDLE), CALL(txn_begin, H, IDLE), CALL(feasible, H, CYCLE),
    CALL(explain, H, CYCLE), CALL(explain_all, H, CYCLE), CALL(reserve, H, CYCLE), CALL(reserve_same, H, CYCLE), CALL(mark, H, CYCLE),
    CALL(rollback, H, CYCLE), CALL(commit, H, CYCLE), CALL(abort_, H, CYCLE), CALL(holders, H, CYCLE), CALL(feasible, H, TRIAL),
    CALL(explain, H, TRIAL), CALL(reserve, H, TRIAL), CALL(reserve_same, H, TRIAL), CALL(give, H, TRIAL), CALL(mark, H, TRIAL), CALL(rollback, H, TRIAL),
    CALL(abort_, H, TRIAL), CALL(release_begin, H, IDLE), CALL(release_confirm, H, CYCLE), CALL(release_job, H, IDLE), CALL(release_job, H, CYCLE),
    CALL(grant_find, H, IDLE), CALL(grant_get, H, IDLE), CALL(env, H, IDLE), CALL(pump, R, IDLE), CALL(pump, R, CYCLE), CALL(host_state, R, IDLE),
    CALL(report_addr, R, IDLE), CALL(report_foreign, R, IDLE), CALL(report_conflict, R, IDLE), CALL(report_ready, R, CYCLE), CALL(wait_put, R, IDLE),
    CALL(wait_drop, R, IDLE), CALL(wait_fd, A, IDLE), CALL(wait_next, A, IDLE), CALL(resolve, A, IDLE), CALL(snap_open, A, IDLE),
    CALL(snap_read, A, IDLE), CALL(snap_close, A, IDLE), CALL(watch_open, A, IDLE), CALL(watch_next, A, IDLE), CALL(watch_close, A, IDLE), CALL(text, A, IDLE),
};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* What is still promised --------------------------------------------------------------------------------------------------------- */

static void check_poisoned(world *w) {
    pr_stats stats = {.size = sizeof stats};
    OK(api->last_error(buf, sizeof buf, &u));
    CHECK(strstr(buf, "injected") != NULL);
    OK(api->stats(w->ctx, &stats));
    CHECK_EQ(stats.poisoned, 1);
    const int32_t dumped = api->dump(w->ctx, buf, sizeof buf, &u);
    CHECK(dumped == PR_OK || dumped == PR_ENOSYS);
    for (uint32_t c = 0; c < CALLS; c++) {
        const int64_t code = calls[c].call(w);
        /* Also what would be PR_ESTALE, and what is not built. */
        CHECK(code == PR_EPOISON || code == PR_ESTALE || code == PR_ENOSYS);
        if (calls[c].phase == IDLE && code == PR_ESTALE) CHECK(w->snap == 0 || w->watch == 0);
    }
    OK(api->destroy(w->ctx));
    CHECK_EQ(api->stats(w->ctx, &stats), PR_ESTALE);
}

static void check_sound(const world *w) {
    pr_stats stats = {.size = sizeof stats};
    pr_txn txn;
    uint64_t no;
    OK(api->stats(w->ctx, &stats));
    CHECK_EQ(stats.poisoned, 0);
    OK(api->txn_begin(w->ctx, 0, 9, &txn));
    pr_want x = want(77, w->profile);
    OK(api->reserve(txn, 0, &x, 1, &grant, ports, 64, &u));
    OK(api->commit(txn, &no));
    OK(api->release_confirm(w->ctx, &grant.id, 1, PR_REL_NO_COOL, 9, NULL));
    OK(api->grant_get(w->ctx, w->held, records, ports, 64, &u));
}

/* As the scheduler's own records would. */
static void check_restored(uint16_t number) {
    world w = begin(RESTORING);
    const pr_rec record = {.who = want(1, w.profile), .n_ports = 1, .state = PR_P_HELD};
    OK(api->restore_put(w.ctx, &record, 1, &number, 1, &grant));
    OK(api->restore_end(w.ctx, 0, 0, &u));
    CHECK_EQ(u, 0);
    OK(api->grant_get(w.ctx, grant.id, records, ports, 64, &u));
    CHECK_EQ(ports[0], number);
    OK(api->destroy(w.ctx));
}

static uint32_t panic_everywhere(const call *one, const world *other) {
    world plain = begin(one->phase);
    const int64_t usual = one->call(&plain);
    OK(api->destroy(plain.ctx));
    if (usual == PR_ENOSYS || (usual == PR_ESTALE && (plain.snap == 0 || plain.watch == 0))) return 0;
    for (uint32_t point = 1; point < 1000; point++) {
        world w = begin(one->phase);
        told = 0;
        (void)panic_at(point);
        const int64_t code = one->call(&w);
        const uint32_t left = panic_at(0);
        if (left != 0) { /* The call ends before that place. */
            OK(api->destroy(w.ctx));
            if (point == 1 || code != usual) failed(one->name, __FILE__, __LINE__, code, PR_EPOISON);
            return point - 1;
        }
        CHECK_EQ(code, PR_EPOISON);
        CHECK_EQ(told, (one->class & (C | R)) != 0);
        told = 0;
        check_poisoned(&w);
        check_sound(other);
        if (point == 1) check_restored(w.number == 0 ? 20000 : w.number);
    }
    failed(one->name, __FILE__, __LINE__, 0, 0);
    return 0;
}

/* Calls without a context: refused, and nothing is in doubt. */
static void panic_outside(void) {
    const pr_config config = {.size = sizeof config};
    pr_ctx ctx = 0;
    for (uint32_t point = 1;; point++) {
        (void)panic_at(point);
        const int32_t code = api->create(&config, &ctx);
        if (panic_at(0) != 0) {
            OK(code);
            break;
        }
        CHECK_EQ(code, PR_EPOISON);
    }
    OK(api->destroy(ctx));
    (void)panic_at(1);
    CHECK_EQ(api->last_error(buf, sizeof buf, &u), PR_EPOISON);
    OK(api->last_error(buf, sizeof buf, &u));
    (void)panic_at(0);
}

/* Machines ------------------------------------------------------------------------------------------------------------------------- */

static const char *const machine = "{\"name\":\"web\",\"command\":[\"/bin/true\"]}";
static uint8_t saved[65536];
static uint32_t n_saved;

static int64_t sup_new(pr_sup sup) { (void)sup; return api->sup_new(str(machine), 1, &id); }
static int64_t sup_load(pr_sup sup) { (void)sup; return api->sup_load(str(machine), saved, n_saved, &id); }
static int64_t sup_save(pr_sup sup) { return api->sup_save(sup, saved, sizeof saved, &n_saved); }
static int64_t sup_event(pr_sup sup) { const pr_sup_event start = {.size = sizeof start, .kind = PR_SE_START}; return api->sup_event(sup, 1, &start); }
static int64_t sup_deadline(pr_sup sup) { return api->sup_deadline(sup, 1); }
static int64_t sup_next_deadline(pr_sup sup) { return api->sup_next_deadline(sup, &big); }
static int64_t sup_next_effect(pr_sup sup) { pr_sup_effect effect = {.size = sizeof effect}; return api->sup_next_effect(sup, &effect); }

/* A defect in one machine ends this one alone. */
static uint32_t panic_in_machines(void) {
    static int64_t (*const calls_of[])(pr_sup) = {sup_save, sup_event, sup_deadline, sup_next_deadline, sup_next_effect, sup_load, sup_new};
    enum { KNOWN = 5, ALL = sizeof calls_of / sizeof calls_of[0] };
    uint32_t panics = 0;
    pr_sup other;
    if (api->sup_new(str(machine), 1, &other) == PR_ENOSYS) return 0;
    OK(sup_save(other));
    for (int c = 0; c < ALL; c++)
        for (uint32_t point = 1;; point++) {
            pr_sup sup;
            OK(api->sup_new(str(machine), 1, &sup));
            (void)panic_at(point);
            const int64_t code = calls_of[c](sup);
            if (panic_at(0) != 0) {
                CHECK(code >= 0 && point > 1);
                if (c >= KNOWN) OK(api->sup_free(id));
                OK(api->sup_free(sup));
                break;
            }
            panics++;
            CHECK_EQ(code, PR_EPOISON);
            /* The first place is before the machine is found, and those that make one have none. */
            if (c < KNOWN) CHECK_EQ(sup_deadline(sup), point == 1 ? PR_OK : PR_EPOISON);
            OK(api->sup_free(sup));
            CHECK_EQ(sup_deadline(sup), PR_ESTALE);
            OK(sup_deadline(other));
        }
    OK(api->sup_free(other));
    return panics;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    void *so = load_plugin(argv[1]);
    *(void **)&panic_at = dlsym(so, "pr_panic_at");
    CHECK(panic_at != NULL);
    const world other = begin(IDLE);
    uint32_t panics = 0;
    for (uint32_t c = 0; c < CALLS; c++) {
        const uint32_t points = panic_everywhere(&calls[c], &other);
        panics += points;
        printf("%s%s: %u\n", calls[c].name, calls[c].phase == TRIAL ? " of a what-if" : "", points);
    }
    panic_outside();
    panics += panic_in_machines();
    printf("%u panics caught in %d calls\n", panics, CALLS);
    return 0;
}
