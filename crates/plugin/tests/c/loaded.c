/* The plugin in a process that is not ours: twice in it, let go of while in use, called from signals and from its own log. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>
#include "calls.h"

#ifndef LINKED
/* Where the plugin that `main` loaded lies. */
static const char *where(void) {
    Dl_info info;
    void *symbol;
    memcpy(&symbol, &get_api, sizeof symbol);
    return dladdr(symbol, &info) != 0 ? info.dli_fname : "";
}

static const pr_api *table_of(void *loaded) {
    int32_t (*ask)(const pr_hostinfo *, const pr_api **, uint32_t *) = NULL;
    *(void **)&ask = dlsym(loaded, "pr_get_api");
    pr_hostinfo host = {sizeof host, PR_ABI, 0};
    const pr_api *found = NULL;
    CHECK(ask != NULL && ask(&host, &found, NULL) == PR_OK);
    return found;
}

/* A file of the same bytes is another plugin: its ids are not ours, and its contexts count for themselves. */
static void two_plugins_in_one_process_know_nothing_of_each_other(void) {
    char copy[] = "/tmp/plugin_copy_XXXXXX";
    int from = open(where(), O_RDONLY | O_CLOEXEC), to = mkstemp(copy);
    CHECK(from >= 0 && to >= 0);
    static char piece[1 << 16];
    ssize_t n;
    while ((n = read(from, piece, sizeof piece)) > 0) CHECK(write(to, piece, (size_t)n) == n);
    close(from);
    close(to);
    void *loaded = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
    unlink(copy);
    CHECK(loaded != NULL);
    if (loaded == NULL) return;
    const pr_api *mine = api, *theirs = table_of(loaded);
    CHECK(theirs != NULL && theirs != mine);
    struct world here = make_world(IDLE);
    api = theirs;
    struct world there = make_world(IDLE);
    uint64_t next;
    for (int turn = 0; turn < 3; turn++) {
        pr_want want = {.job = 9, .incarnation = (uint32_t)turn, .profile = there.profile};
        uint16_t number;
        hold(there.ctx, &want, &number, 1);
        EQ(api->pump(there.ctx, 1000, &next), PR_OK);
    }
    EQ(stats_of(there.ctx).allocs, 4);
    api = mine;
    EQ(stats_of(here.ctx).allocs, 1);
    EQ(api->pump(here.ctx, 1000, &next), PR_OK);
    api = theirs;
    end_world(&there);
    EQ(dlclose(loaded), 0);
    api = mine;
    end_world(&here);
}

/* Closed by everybody while contexts live: it stays, and so does the table. */
static void a_plugin_that_is_closed_goes_on(void) {
    struct world world = make_world(IN_TXN);
    for (int turn = 0; turn < 20; turn++) {
        void *again = dlopen(where(), RTLD_NOW | RTLD_NOLOAD);
        CHECK(again != NULL);
        if (again == NULL) break;
        /* More often than it was opened. */
        EQ(dlclose(again), 0);
        dlclose(again);
    }
    pr_want want = {.job = 2, .profile = world.profile};
    pr_grant grant;
    uint16_t port;
    uint32_t need;
    EQ(api->reserve(world.txn, 0, &want, 1, &grant, &port, 1, &need), PR_OK);
    end_world(&world);
    void *again = dlopen(where(), RTLD_NOW | RTLD_LOCAL);
    CHECK(again != NULL && table_of(again) == api);
}

#ifndef SANITIZED
/* A library of its own name space has a plugin of its own; sanitizers cannot follow there. */
static void a_name_space_of_its_own_has_a_plugin_of_its_own(void) {
    if (rounds(20) != 20) return;
    void *apart = dlmopen(LM_ID_NEWLM, where(), RTLD_NOW | RTLD_LOCAL);
    CHECK(apart != NULL);
    if (apart == NULL) return;
    const pr_api *mine = api;
    struct world here = make_world(IDLE);
    api = table_of(apart);
    CHECK(api != mine);
    struct world there = make_world(IDLE);
    EQ(stats_of(there.ctx).allocs, 1);
    end_world(&there);
    EQ(dlclose(apart), 0);
    api = mine;
    end_world(&here);
}
#endif
#endif

struct called {
    pr_ctx ctx;
    atomic_uint times, wrong;
    int depth;
};

/* A log that calls back into what it logs about; it is under no lock, so any call answers. */
static void call_back(void *ud, int32_t level, int32_t code, const char *msg, uint64_t n) {
    struct called *called = ud;
    (void)code;
    if (level < 3 || level > 7 || msg == NULL || strnlen(msg, n) != n) atomic_fetch_add(&called->wrong, 1);
    atomic_fetch_add(&called->times, 1);
    if (called->ctx == 0 || called->depth > 0) return;
    called->depth++;
    uint64_t next;
    uint32_t need;
    pr_stats stats = {.size = sizeof stats};
    pr_host host = {.size = sizeof host, .host = 9, .name = text("n9")};
    pr_txn txn;
    int32_t codes[] = {api->stats(called->ctx, &stats), api->pump(called->ctx, 0, &next), api->host_put(called->ctx, &host, 1),
                       api->dump(called->ctx, NULL, 0, &need), api->host_state(called->ctx, 0, PR_HOST_UP)};
    for (unsigned at = 0; at < sizeof codes / sizeof *codes; at++) {
        int known = codes[at] == PR_OK || codes[at] == PR_EBUSY || codes[at] == PR_ENOSPC || codes[at] == PR_ESTALE || codes[at] == PR_ENOENT;
        if (!known) atomic_fetch_add(&called->wrong, 1);
    }
    if (api->txn_begin(called->ctx, 0, 0, &txn) == PR_OK) api->abort_(txn);
    called->depth--;
}

/* Everything that may be worth a line, with a callback that calls in. */
static void a_log_may_call_back(void) {
    struct called called = {0};
    pr_config config = small_config(0);
    config.log = call_back;
    config.ud = &called;
    pr_ctx ctx = make(&config);
    called.ctx = ctx;
    put_hosts(ctx, 2);
    pr_port http = {.name = text("http"), .fixed = 8080, .proto = PR_TCP};
    uint32_t profile = put_profile(ctx, "web.alice", &http, 1), conflicts, need;
    pr_rec recs[2] = {{.who = {.job = 1, .profile = profile}, .n_ports = 1, .state = PR_P_HELD}, {.who = {.job = 2, .profile = profile}, .n_ports = 1, .state = PR_P_HELD}};
    const uint16_t numbers[] = {8080};
    pr_grant grants[2];
    EQ(api->restore_put(ctx, recs, 2, numbers, 1, grants), PR_OK);
    EQ(api->restore_end(ctx, 0, 0, &conflicts), PR_OK);
    EQ(conflicts, 2);
    EQ(api->report_conflict(ctx, grants[0].id, 8080, PR_TCP, 17), PR_OK);
    EQ(api->host_state(ctx, 1, PR_HOST_LOST), PR_OK);
    EQ(api->host_remove(ctx, 0, PR_REMOVE_FORCE), PR_OK);
    EQ(api->destroy(ctx), PR_OK);
    EQ(called.wrong, 0);
    (void)need;
}

/* The context that the log's call is about, ended by the log. */
static void destroy_it(void *ud, int32_t level, int32_t code, const char *msg, uint64_t n) {
    struct called *called = ud;
    (void)level, (void)code, (void)msg, (void)n;
    atomic_fetch_add(&called->times, 1);
    if (called->ctx == 0) return;
    pr_ctx ctx = called->ctx;
    called->ctx = 0;
    int32_t ended = api->destroy(ctx);
    if (ended != PR_OK && ended != PR_EBUSY && ended != PR_ESTALE) atomic_fetch_add(&called->wrong, 1);
}

static void a_log_may_end_its_context(void) {
    struct called called = {0};
    pr_config config = small_config(0);
    config.log = destroy_it;
    config.ud = &called;
    for (int which = 0; which < 2; which++) {
        pr_ctx ctx = make(&config);
        put_hosts(ctx, 1);
        pr_port http = {.name = text("http"), .fixed = 8080, .proto = PR_TCP};
        uint32_t profile = put_profile(ctx, "web.alice", &http, 1), conflicts;
        pr_rec recs[2] = {{.who = {.job = 1, .profile = profile}, .n_ports = 1, .state = PR_P_HELD}, {.who = {.job = 2, .profile = profile}, .n_ports = 1, .state = PR_P_HELD}};
        const uint16_t numbers[] = {8080};
        pr_grant grants[2];
        called.ctx = ctx;
        if (which == 0) {
            api->restore_put(ctx, recs, 2, numbers, 1, grants);
            api->restore_end(ctx, 0, 0, &conflicts);
            api->report_conflict(ctx, grants[0].id, 8080, PR_TCP, 17);
        }
        /* Also as it ends. */
        int32_t code = api->destroy(ctx);
        CHECK(code == PR_OK || code == PR_ESTALE);
        called.ctx = 0;
        EQ(api->destroy(ctx), PR_ESTALE);
    }
    EQ(called.wrong, 0);
}

static struct world interrupted;
static atomic_uint interruptions, wrong_in_handler;

/* Whatever the thread was at: hot calls and readers answer at once, or say that somebody is in. */
static void call_in(int number) {
    (void)number;
    uint64_t next;
    uint32_t need, n, flags;
    pr_txn txn;
    pr_want woken;
    pr_alloc id = interrupted.held;
    pr_rec rec;
    uint16_t port;
    int32_t codes[] = {api->txn_begin(interrupted.ctx, 0, 0, &txn), PR_OK, PR_OK};
    if (codes[0] == PR_OK) api->abort_(txn);
    codes[1] = api->grant_get(interrupted.ctx, id, &rec, &port, 1, &need);
    (void)next, (void)woken, (void)n, (void)flags;
    for (int at = 0; at < 3; at++) {
        if (codes[at] != PR_OK && codes[at] != PR_EBUSY && codes[at] != PR_ESTATE) atomic_fetch_add(&wrong_in_handler, 1);
    }
    atomic_fetch_add(&interruptions, 1);
}

/* Not promised for every call, but a hot call that a handler makes inside a hot call is busy, not stuck. */
static void a_handler_that_calls_in_is_busy_or_served(void) {
    interrupted = make_world(IDLE);
    struct sigaction action = {.sa_handler = call_in, .sa_flags = SA_RESTART}, before;
    EQ(sigaction(SIGALRM, &action, &before), 0);
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (uint32_t round = 0; round < 200000 && atomic_load(&interruptions) < rounds(400); round++) {
        pr_txn txn;
        int32_t code = api->txn_begin(interrupted.ctx, 0, 0, &txn);
        CHECK(code == PR_OK || code == PR_EBUSY);
        if (code != PR_OK) continue;
        pr_want want = {.job = 9, .profile = interrupted.profile, .host = 1};
        pr_grant grant;
        uint16_t port;
        uint32_t need;
        EQ(api->reserve(txn, 0, &want, 1, &grant, &port, 1, &need), PR_OK);
        EQ(api->abort_(txn), PR_OK);
    }
    EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    EQ(sigaction(SIGALRM, &before, NULL), 0);
    CHECK(atomic_load(&interruptions) > 0);
    EQ(wrong_in_handler, 0);
    EQ(stats_of(interrupted.ctx).allocs, 1);
    end_world(&interrupted);
}

enum { CROWD = 8 };
struct crowd {
    struct world world;
    atomic_int done;
    atomic_uint wrong, calls, done_calls, seed;
};

/* Any call of the table with its good arguments, on memory of the thread's own. */
static void *anything(void *at) {
    struct crowd *crowd = at;
    struct dice d = {atomic_fetch_add(&crowd->seed, 1)};
    while (!atomic_load(&crowd->done)) {
        union {
            uint64_t aligned[8192];
            char bytes[65536];
        } *memory = malloc(sizeof *memory);
        if (memory == NULL) abort();
        const struct call *it = calls + below(&d, n_calls);
        if (it->params[0].role != ID || it->params[0].with == SUP || strcmp(it->name, "destroy") == 0) {
            free(memory);
            continue;
        }
        union value values[PARAMS + 1];
        size_t used = 0;
        memset(memory, 0, 4096);
        for (unsigned p = 0; it->params[p].role != END; p++) {
            values[p] = (union value){0};
            const struct param *param = &it->params[p];
            switch (param->role) {
            case ID:
                values[p].u = param->with == CONTEXT ? crowd->world.ctx : param->with == ALLOC ? crowd->world.held : param->with == SNAP ? crowd->world.snap
                              : param->with == WATCH ? crowd->world.watch : __atomic_load_n(&crowd->world.txn, __ATOMIC_RELAXED);
                break;
            case NUMBER: values[p].u = below(&d, 4); break;
            case COUNT:
            case CAP: values[p].u = below(&d, 2); break;
            case TEXT: values[p].s = below(&d, 2) ? text("web.alice") : (pr_str){NULL, 0}; break;
            default:
                if (!is_pointer(param->role)) break;
                values[p].p = memory->bytes + used;
                *(uint32_t *)values[p].p = strncmp(param->type, "pr_", 3) == 0 ? param->size : below(&d, 2);
                used += (param->size + 63) / 64 * 64;
            }
        }
        int64_t code = it->go(values);
        if (code < PR_ENOSYS || code == PR_EPOISON || code == PR_EFORK) {
            atomic_fetch_add(&crowd->wrong, 1);
            trying("%s", it->name);
            failed(__FILE__, __LINE__, "%lld; %s", (long long)code, words());
        }
        if (code == PR_OK && strcmp(it->name, "txn_begin") == 0) __atomic_store_n(&crowd->world.txn, *(pr_txn *)values[3].p, __ATOMIC_RELAXED);
        /* What is opened here is closed here. */
        if (code == PR_OK && strcmp(it->name, "snap_open") == 0) api->snap_close(*(pr_snap *)values[2].p);
        if (code == PR_OK && strcmp(it->name, "watch_open") == 0) api->watch_close(*(pr_watch *)values[3].p);
        if (code >= 0) atomic_fetch_add(&crowd->done_calls, 1);
        atomic_fetch_add(&crowd->calls, 1);
        free(memory);
    }
    return NULL;
}

/* All of the table by all at once; ten seconds with PORTREEVE_LONG. Nothing is promised but that it answers. */
static void a_crowd_may_call_anything(void) {
    struct crowd crowd = {.world = make_world(IDLE)};
    const uint32_t most = getenv("PORTREEVE_LONG") != NULL ? 3000000 : 20000;
    pthread_t threads[CROWD];
    for (int t = 0; t < CROWD; t++) EQ(pthread_create(&threads[t], NULL, anything, &crowd), 0);
    while (atomic_load(&crowd.calls) < rounds(most)) usleep(1000);
    atomic_store(&crowd.done, 1);
    for (int t = 0; t < CROWD; t++) EQ(pthread_join(threads[t], NULL), 0);
    EQ(crowd.wrong, 0);
    /* A crowd that is only refused tries nothing. */
    CHECK(crowd.done_calls * 10 > crowd.calls);
    pr_stats stats = stats_of(crowd.world.ctx);
    EQ(stats.poisoned, 0);
    end_world(&crowd.world);
}

const struct test loaded_tests[] = {
#ifndef LINKED
    {"two_plugins_in_one_process_know_nothing_of_each_other", two_plugins_in_one_process_know_nothing_of_each_other},
    {"a_plugin_that_is_closed_goes_on", a_plugin_that_is_closed_goes_on},
#ifndef SANITIZED
    {"a_name_space_of_its_own_has_a_plugin_of_its_own", a_name_space_of_its_own_has_a_plugin_of_its_own},
#endif
#endif
    {"a_log_may_call_back", a_log_may_call_back},
    {"a_log_may_end_its_context", a_log_may_end_its_context},
    {"a_handler_that_calls_in_is_busy_or_served", a_handler_that_calls_in_is_busy_or_served},
    {"a_crowd_may_call_anything", a_crowd_may_call_anything},
    {NULL, NULL},
};
