#include "calls.h"

#define L(i) v[i].u
#define U(i) ((uint32_t)v[i].u)
#define P(i) v[i].p
#define S(i) v[i].s
#define CALL(name, ...) static int64_t go_##name(const union value *v) { return api->name(__VA_ARGS__); }
CALL(create, P(0), P(1))
CALL(destroy, L(0))
CALL(host_put, L(0), P(1), U(2))
CALL(host_remove, L(0), U(1), U(2))
CALL(network_put, L(0), P(1), U(2))
CALL(profile_put, L(0), P(1), P(2))
CALL(profile_drop, L(0), U(1))
CALL(restore_put, L(0), P(1), U(2), P(3), U(4), P(5))
CALL(restore_end, L(0), U(1), L(2), P(3))
CALL(export_, L(0), P(1), P(2), U(3), P(4), U(5), P(6), P(7))
CALL(txn_begin, L(0), U(1), L(2), P(3))
CALL(feasible, L(0), P(1), P(2), P(3), P(4), U(5))
CALL(explain, L(0), P(1), U(2), P(3), U(4), P(5))
CALL(explain_all, L(0), P(1), P(2), U(3), P(4), U(5))
CALL(reserve, L(0), U(1), P(2), U(3), P(4), P(5), U(6), P(7))
CALL(give, L(0), P(1), U(2), P(3))
CALL(mark, L(0), P(1))
CALL(rollback, L(0), U(1))
CALL(commit, L(0), P(1))
CALL(abort_, L(0))
CALL(holders, L(0), U(1), P(2), P(3), U(4), P(5))
CALL(release_begin, L(0), P(1), U(2), U(3), P(4))
CALL(release_confirm, L(0), P(1), U(2), U(3), L(4), P(5))
CALL(release_job, L(0), L(1), U(2), U(3), L(4), P(5))
CALL(grant_find, L(0), P(1), P(2))
CALL(grant_get, L(0), L(1), P(2), P(3), U(4), P(5))
CALL(env, L(0), L(1), U(2), P(3), U(4), P(5))
CALL(pump, L(0), L(1), P(2))
CALL(host_state, L(0), U(1), U(2))
CALL(report_addr, L(0), U(1), L(2), P(3), U(4))
CALL(report_foreign, L(0), U(1), L(2), P(3), U(4))
CALL(report_conflict, L(0), L(1), (uint16_t)L(2), U(3), U(4))
CALL(report_ready, L(0), P(1), U(2), P(3))
CALL(wait_put, L(0), P(1), U(2), P(3))
CALL(wait_drop, L(0), P(1), U(2), P(3))
CALL(wait_fd, L(0), P(1))
CALL(wait_next, L(0), P(1), U(2), P(3), P(4))
CALL(resolve, L(0), S(1), S(2), U(3), P(4), U(5), P(6), P(7))
CALL(snap_open, L(0), S(1), P(2), P(3), P(4))
CALL(snap_read, L(0), U(1), P(2), U(3), P(4))
CALL(snap_close, L(0))
CALL(watch_open, L(0), S(1), L(2), P(3), P(4))
CALL(watch_next, L(0), P(1), U(2), P(3), P(4))
CALL(watch_close, L(0))
CALL(text, L(0), U(1), U(2), P(3), U(4), P(5))
CALL(stats, L(0), P(1))
CALL(dump, L(0), P(1), U(2), P(3))
CALL(last_error, P(0), U(1), P(2))
CALL(sup_new, S(0), L(1), P(2))
CALL(sup_load, S(0), P(1), L(2), P(3))
CALL(sup_save, L(0), P(1), U(2), P(3))
CALL(sup_event, L(0), L(1), P(2))
CALL(sup_deadline, L(0), L(1))
CALL(sup_next_deadline, L(0), P(1))
CALL(sup_next_effect, L(0), P(1))
CALL(sup_free, L(0))

#define ONE(role, type) {role, 0, sizeof(type), _Alignof(type), #type}
#define CTX {ID, CONTEXT, 0, 0, ""}
#define TXN {ID, TRANSACTION, 0, 0, ""}
#define GRANT {ID, ALLOC, 0, 0, ""}
#define NUM {NUMBER, 0, 0, 0, ""}
#define N {COUNT, 0, 0, 0, ""}
#define ROOM {CAP, 0, 0, 0, ""}
#define KNOWN(bits) {FLAGS, bits, 0, 0, ""}
#define STR {TEXT, 0, 0, 0, ""}
#define RC ONE(CODES, int32_t)
#define NEEDED ONE(NEED, uint32_t)
#define ROW(name, phase, ...) {#name, phase, go_##name, {__VA_ARGS__}}

const struct call calls[] = {
    ROW(create, IDLE, ONE(IN, pr_config), ONE(OUT, pr_ctx)),
    ROW(destroy, IDLE, CTX),
    ROW(host_put, IDLE, CTX, ONE(ARRAY, pr_host), N),
    ROW(host_remove, IDLE, CTX, NUM, KNOWN(PR_REMOVE_FORCE)),
    ROW(network_put, IDLE, CTX, ONE(ARRAY, pr_network), N),
    ROW(profile_put, IDLE, CTX, ONE(IN, pr_profile), ONE(OUT, uint32_t)),
    ROW(profile_drop, IDLE, CTX, NUM),
    ROW(restore_put, RESTORING, CTX, ONE(ARRAY, pr_rec), N, ONE(ARRAY, uint16_t), N, ONE(OUT_OR_NULL, pr_grant)),
    ROW(restore_end, RESTORING, CTX, KNOWN(0), NUM, ONE(OUT, uint32_t)),
    ROW(export_, IDLE, CTX, ONE(IN, uint64_t), ONE(BUFFER, pr_rec), ROOM, ONE(BUFFER, uint16_t), ROOM, ONE(OUT, uint32_t),
        ONE(OUT, uint32_t)),
    ROW(txn_begin, IDLE, CTX, KNOWN(PR_TXN_WHATIF), NUM, ONE(OUT, pr_txn)),
    ROW(feasible, IN_TXN, TXN, ONE(IN, pr_need), ONE(IN_OR_NULL, uint64_t), ONE(OUT_ARRAY, uint64_t),
        {OUT_OR_NULL, 0, 128, 2, "uint16_t"}, N),
    ROW(explain, IN_TXN, TXN, ONE(IN, pr_need), NUM, ONE(BUFFER, pr_why), ROOM, NEEDED),
    ROW(explain_all, IN_TXN, TXN, ONE(IN, pr_need), ONE(IN_OR_NULL, uint64_t), N, ONE(OUT_ARRAY, uint32_t), N),
    ROW(reserve, IN_TXN, TXN, KNOWN(PR_RESERVE_ALL | PR_RESERVE_SAME), ONE(ARRAY, pr_want), N, ONE(OUT_ARRAY, pr_grant),
        ONE(BUFFER, uint16_t), ROOM, NEEDED),
    ROW(give, IN_WHAT_IF, TXN, ONE(ARRAY, pr_alloc), N, RC),
    ROW(mark, IN_TXN, TXN, ONE(OUT, uint32_t)),
    ROW(rollback, IN_TXN, TXN, NUM),
    ROW(commit, IN_TXN, TXN, ONE(OUT, uint64_t)),
    ROW(abort_, IN_TXN, TXN),
    ROW(holders, IN_TXN, TXN, NUM, ONE(IN, uint32_t), ONE(BUFFER, pr_held), ROOM, ONE(OUT, uint32_t)),
    ROW(release_begin, IDLE, CTX, ONE(ARRAY, pr_alloc), N, KNOWN(0), RC),
    ROW(release_confirm, IDLE, CTX, ONE(ARRAY, pr_alloc), N, KNOWN(PR_REL_NO_COOL), NUM, RC),
    /* confirm is a yes or no: every bit but the lowest is refused, as a flag would be. */
    ROW(release_job, IDLE, CTX, NUM, NUM, KNOWN(1), NUM, ONE(OUT, uint32_t)),
    ROW(grant_find, IDLE, CTX, ONE(IN, pr_want), ONE(OUT, pr_alloc)),
    ROW(grant_get, IDLE, CTX, GRANT, ONE(OUT, pr_rec), ONE(BUFFER, uint16_t), ROOM, NEEDED),
    ROW(env, IDLE, CTX, GRANT, KNOWN(0), {BUFFER, 0, 1024, 1, "char"}, ROOM, NEEDED),
    ROW(pump, IDLE, CTX, NUM, ONE(OUT, uint64_t)),
    ROW(host_state, IDLE, CTX, NUM, NUM),
    ROW(report_addr, IDLE, CTX, NUM, NUM, ONE(ARRAY, pr_addr), N),
    ROW(report_foreign, IDLE, CTX, NUM, NUM, ONE(ARRAY, pr_foreign), N),
    ROW(report_conflict, IDLE, CTX, GRANT, NUM, NUM, NUM),
    ROW(report_ready, IDLE, CTX, ONE(ARRAY, pr_ready), N, RC),
    ROW(wait_put, IDLE, CTX, ONE(ARRAY, pr_want), N, RC),
    ROW(wait_drop, IDLE, CTX, ONE(ARRAY, pr_want), N, RC),
    ROW(wait_fd, IDLE, CTX, ONE(OUT, int32_t)),
    ROW(wait_next, IDLE, CTX, ONE(BUFFER, pr_want), ROOM, ONE(OUT, uint32_t), ONE(OUT, uint32_t)),
    ROW(resolve, IDLE, CTX, STR, STR, KNOWN(PR_RESOLVE_ALL), ONE(BUFFER, pr_endpoint), ROOM, NEEDED, ONE(OUT, uint64_t)),
    ROW(snap_open, IDLE, CTX, STR, ONE(OUT, pr_snap), ONE(OUT, uint64_t), ONE(OUT, uint32_t)),
    ROW(snap_read, IDLE, {ID, SNAP, 0, 0, ""}, NUM, ONE(BUFFER, pr_endpoint), ROOM, ONE(OUT, uint32_t)),
    ROW(snap_close, IDLE, {ID, SNAP, 0, 0, ""}),
    ROW(watch_open, IDLE, CTX, STR, NUM, ONE(OUT, pr_watch), ONE(OUT, int32_t)),
    ROW(watch_next, IDLE, {ID, WATCH, 0, 0, ""}, ONE(BUFFER, pr_change), ROOM, ONE(OUT, uint32_t), ONE(OUT, uint32_t)),
    ROW(watch_close, IDLE, {ID, WATCH, 0, 0, ""}),
    ROW(text, IDLE, CTX, NUM, NUM, {BUFFER, 0, 1024, 1, "char"}, ROOM, NEEDED),
    ROW(stats, IDLE, CTX, ONE(OUT, pr_stats)),
    ROW(dump, IDLE, CTX, {BUFFER, 0, 32768, 1, "char"}, ROOM, NEEDED),
    ROW(last_error, IDLE, {BUFFER, 0, 1024, 1, "char"}, ROOM, NEEDED),
    ROW(sup_new, IDLE, STR, NUM, ONE(OUT, pr_sup)),
    ROW(sup_load, IDLE, STR, {IN, 0, 8192, 1, "char"}, {BYTES, 0, 0, 0, ""}, ONE(OUT, pr_sup)),
    ROW(sup_save, IDLE, {ID, SUP, 0, 0, ""}, {BUFFER, 0, 8192, 1, "char"}, ROOM, NEEDED),
    ROW(sup_event, IDLE, {ID, SUP, 0, 0, ""}, NUM, ONE(IN, pr_sup_event)),
    ROW(sup_deadline, IDLE, {ID, SUP, 0, 0, ""}, NUM),
    ROW(sup_next_deadline, IDLE, {ID, SUP, 0, 0, ""}, ONE(OUT, uint64_t)),
    ROW(sup_next_effect, IDLE, {ID, SUP, 0, 0, ""}, ONE(OUT, pr_sup_effect)),
    ROW(sup_free, IDLE, {ID, SUP, 0, 0, ""}),
};
const unsigned n_calls = sizeof calls / sizeof *calls;

int is_pointer(enum role role) {
    return role == IN || role == ARRAY || role == IN_OR_NULL || role == OUT || role == OUT_ARRAY || role == OUT_OR_NULL ||
           role == CODES || role == BUFFER || role == NEED;
}

static uint64_t id_of(const struct world *world, uint64_t kind) {
    switch (kind) {
    case CONTEXT: return world->ctx;
    case TRANSACTION: return world->txn;
    case ALLOC: return world->held;
    case SNAP: return world->snap;
    case WATCH: return world->watch;
    default: return world->sup;
    }
}

/* Fills what is pointed to with what the call accepts. */
static void fill(const struct call *call, const struct world *world, unsigned at, void *p) {
    static const pr_port http = {.name = {"http", 4}, .proto = PR_TCP};
    const struct param *param = &call->params[at];
    const int in = param->role == IN || param->role == ARRAY || param->role == IN_OR_NULL;
    /* Two outputs begin with their size. */
    if (strcmp(param->type, "pr_stats") == 0 || strcmp(param->type, "pr_sup_effect") == 0) *(uint32_t *)p = param->size;
#define IS(of) (in && strcmp(param->type, #of) == 0)
    if (IS(pr_config)) *(pr_config *)p = small_config(0);
    if (IS(pr_host)) *(pr_host *)p = (pr_host){.size = sizeof(pr_host), .host = 2, .name = {"n2", 2}};
    if (IS(pr_network))
        *(pr_network *)p = (pr_network){.size = sizeof(pr_network), .name = {"fast", 4}, .ip = {10}, .family = 4, .prefix = 8};
    if (IS(pr_profile))
        *(pr_profile *)p = (pr_profile){.size = sizeof(pr_profile), .name = {"db", 2}, .service = {"db.alice", 8}, .ports = &http,
                                        .n_ports = 1, .port_size = sizeof http};
    if (IS(pr_rec)) *(pr_rec *)p = (pr_rec){.who = {.job = 1, .profile = world->profile}, .n_ports = 1, .state = PR_P_HELD};
    if (IS(pr_want)) {
        /* Job 1 holds, job 4 waits, job 2 is new. */
        uint64_t job = call->go == go_grant_find ? 1 : call->go == go_wait_drop ? 4 : 2;
        uint32_t host = call->go == go_wait_drop ? PR_ANY : 0;
        *(pr_want *)p = (pr_want){.job = job, .profile = world->profile, .host = host};
    }
    if (IS(pr_addr)) *(pr_addr *)p = (pr_addr){.ip = {10, 0, 0, 7}, .family = 4};
    if (IS(pr_foreign)) *(pr_foreign *)p = (pr_foreign){.lo = 30000, .hi = 30001, .proto = PR_TCP, .pid = 1};
    if (IS(pr_ready)) *(pr_ready *)p = (pr_ready){.id = world->held, .seq = 100, .run = 1, .state = PR_E_READY};
    if (IS(pr_need)) *(pr_need *)p = (pr_need){.profile = world->profile};
    if (IS(pr_sup_event)) *(pr_sup_event *)p = (pr_sup_event){.size = sizeof(pr_sup_event), .kind = 1};
    if (IS(pr_alloc)) *(pr_alloc *)p = world->held;
    if (IS(uint16_t)) *(uint16_t *)p = 20000;
    if (IS(uint32_t)) *(uint32_t *)p = 0; /* a cursor that begins */
    if (IS(uint64_t)) *(uint64_t *)p = param->role == IN ? 0 : 3; /* the same, or the hosts 0 and 1 */
#undef IS
}

static uint64_t number(const struct call *call, const struct world *world, unsigned at) {
#define IS(name) (call->go == go_##name)
    const uint64_t now = 1000;
    if (IS(rollback)) return world->mark;
    if (IS(profile_drop)) return world->profile;
    if (IS(host_remove)) return 1; /* nobody holds anything there */
    if (IS(release_job)) return at == 1 ? 1 : at == 2 ? PR_ANY : now;
    if (IS(report_addr) || IS(report_foreign)) return at == 2 ? 100 : 0;
    if (IS(report_conflict)) return at == 2 ? world->number : at == 3 ? PR_TCP : 1;
    if (IS(text)) return at == 1 ? PR_TEXT_SERVICE : 0;
    if (IS(host_state)) return at == 1 ? 0 : PR_HOST_DRAINED;
    if (IS(txn_begin) || IS(pump) || IS(release_confirm) || IS(restore_end)) return now;
    return 0;
#undef IS
}

void arguments(const struct call *call, const struct world *world, union value *values) {
    for (unsigned at = 0; call->params[at].role != END; at++) {
        const struct param *param = &call->params[at];
        values[at] = (union value){0};
        switch (param->role) {
        case ID:
            values[at].u = id_of(world, param->with);
            break;
        case NUMBER: values[at].u = number(call, world, at); break;
        case COUNT: values[at].u = 1; break;
        /* Bytes are counted one by one, elements as such. */
        case CAP: values[at].u = call->params[at - 1].align == 1 ? call->params[at - 1].size : 1; break;
        case TEXT:
            values[at].s = call->go == go_sup_new || call->go == go_sup_load ? text(sup_profile)
                           : at == 2 ? (pr_str){NULL, 0} : text("web.alice");
            break;
        case BYTES: {
            uint32_t need;
            EQ(api->sup_save(world->sup, values[at - 1].p, call->params[at - 1].size, &need), PR_OK);
            values[at - 1].p = guarded_copy(at - 1, memcpy(guarded(15, need), values[at - 1].p, need), need);
            values[at].u = need;
            break;
        }
        default:
            if (!is_pointer(param->role)) break;
            values[at].p = guarded(at, param->size);
            fill(call, world, at, values[at].p);
        }
    }
}
