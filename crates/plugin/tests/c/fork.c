/* A child has its parent's memory and none of its threads: it is told so by every call, and can begin anew. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include "calls.h"

static int failed_here;

/* In the child: what is wrong is said by the exit code, for output and counts are the parent's. */
#define HERE(truth)                                                                                     \
    do {                                                                                                \
        if (!(truth)) {                                                                                 \
            fprintf(stderr, "%s:%d: in the child: %s; %s\n", __FILE__, __LINE__, #truth, words());      \
            failed_here = 1;                                                                            \
        }                                                                                               \
    } while (0)

/* Ends a child with its verdict. By another program: at the end of this one a leak checker would find what threads of the
 * parent had in hand when it forked, which nobody can give back here. */
static void leave(void) {
    execl("/bin/sh", "sh", "-c", failed_here ? "exit 1" : "exit 0", (char *)NULL);
    _exit(2);
}

/* Runs `child` in a child, which has ten seconds, and waits for it. */
static void in_child(void (*child)(void *), void *with) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        failed_here = 0;
        child(with);
        leave();
    }
    CHECK(pid > 0);
    int status = -1;
    EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    EQ(WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), 0);
}

/* A context of its own, used from end to end. */
static void begins_anew(void) {
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    pr_ctx ctx = 0;
    HERE(api->create(&config, &ctx) == PR_OK);
    pr_host host = {.size = sizeof host, .name = text("n0")};
    HERE(api->host_put(ctx, &host, 1) == PR_OK);
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    pr_profile profile = {.size = sizeof profile, .service = text("web.alice"), .ports = &http, .n_ports = 1, .port_size = sizeof http};
    pr_want want = {.job = 1};
    pr_txn txn;
    pr_grant grant;
    uint16_t port;
    uint32_t need;
    uint64_t number;
    HERE(api->profile_put(ctx, &profile, &want.profile) == PR_OK);
    HERE(api->txn_begin(ctx, 0, 0, &txn) == PR_OK);
    HERE(api->reserve(txn, 0, &want, 1, &grant, &port, 1, &need) == PR_OK);
    HERE(api->commit(txn, &number) == PR_OK);
    HERE(api->pump(ctx, 0, &number) == PR_OK);
    HERE(api->destroy(ctx) == PR_OK);
}

struct args {
    const struct call *call;
    const struct world *world;
    union value values[PARAMS + 1];
};

static void is_told(void *with) {
    struct args *args = with;
    HERE(args->call->go(args->values) == PR_EFORK);
    HERE(strstr(words(), "fork") != NULL || strstr(words(), "process") != NULL);
}

static void every_call_tells_a_child_that_it_is_one(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        if (it->params[0].role != ID) continue;
        trying("%s in a child", it->name);
        struct world world = make_world(it->phase);
        struct args args = {.call = it, .world = &world};
        arguments(it, &world, args.values);
        pr_stats was = stats_of(world.ctx);
        in_child(is_told, &args);
        /* The parent is unhurt: its call does what it did. */
        pr_stats is = stats_of(world.ctx);
        CHECK(same_state(&was, &is));
        CHECK(it->go(args.values) >= 0);
        if (strcmp(it->name, "destroy") == 0) world.ctx = 0;
        if (strcmp(it->name, "sup_free") == 0) world.sup = 0;
        end_world(&world);
    }
}

/* What needs no context works in a child as anywhere. */
static void child_alone(void *with) {
    const struct world *world = with;
    char said[256];
    uint32_t need;
    HERE(api->last_error(said, sizeof said, &need) == PR_OK);
    HERE(api->strerror_(PR_EFORK) != NULL && api->reason_(PR_R_HELD) != NULL);
    pr_hostinfo host = {sizeof host, PR_ABI, 0};
    const pr_api *again = NULL;
    HERE(get_api(&host, &again, NULL) == PR_OK && again == api);
    begins_anew();
    uint64_t next;
    HERE(api->pump(world->ctx, 0, &next) == PR_EFORK);
    HERE(api->destroy(world->ctx) == PR_EFORK);
    /* A grandchild is nobody's either. */
    if (failed_here == 0) {
        pr_config config = small_config(PR_CFG_NO_RESTORE);
        pr_ctx mine = 0;
        HERE(api->create(&config, &mine) == PR_OK);
        pid_t pid = fork();
        if (pid == 0) {
            HERE(api->pump(mine, 0, &next) == PR_EFORK);
            HERE(api->pump(world->ctx, 0, &next) == PR_EFORK);
            begins_anew();
            leave();
        }
        int status = -1;
        HERE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        HERE(api->destroy(mine) == PR_OK);
    }
}

static void a_child_begins_anew_and_its_parent_goes_on(void) {
    static const enum phase phases[] = {RESTORING, IDLE, IN_TXN, IN_WHAT_IF};
    for (int at = 0; at < 4; at++) {
        trying("phase %d", at);
        struct world world = make_world(phases[at]);
        in_child(child_alone, &world);
        pr_stats stats = stats_of(world.ctx);
        EQ(stats.poisoned, 0);
        EQ(stats.hosts, 2);
        if (world.txn != 0) EQ(api->abort_(world.txn), PR_OK);
        end_world(&world);
    }
}

/* Calls without end in another thread, which may be anywhere when its process forks. */
static atomic_int stop;

static void *call_on(void *at) {
    struct world *world = at;
    for (uint64_t turn = 1; !atomic_load(&stop); turn++) {
        pr_txn txn;
        pr_want want = {.job = 100 + turn, .profile = world->profile, .host = 1};
        pr_grant grant;
        pr_endpoint endpoints[4];
        uint16_t port;
        uint32_t need;
        uint64_t number;
        EQ(api->txn_begin(world->ctx, 0, turn, &txn), PR_OK);
        EQ(api->reserve(txn, 0, &want, 1, &grant, &port, 1, &need), PR_OK);
        EQ(api->commit(txn, &number), PR_OK);
        EQ(api->pump(world->ctx, turn, &number), PR_OK);
        EQ(api->resolve(world->ctx, text("web.alice"), text(""), 0, endpoints, 4, &need, &number), PR_OK);
        EQ(api->release_confirm(world->ctx, &grant.id, 1, PR_REL_NO_COOL, turn, NULL), PR_OK);
    }
    return NULL;
}

static void *make_and_end(void *nothing) {
    while (!atomic_load(&stop)) {
        pr_config config = small_config(PR_CFG_NO_RESTORE);
        pr_ctx ctx;
        int32_t code = api->create(&config, &ctx);
        CHECK(code == PR_OK || code == PR_EBUSY);
        for (int turn = 0; code == PR_OK && api->destroy(ctx) == PR_EBUSY && turn < 1000000; turn++) {}
    }
    return nothing;
}

static void *begin_and_free_machines(void *nothing) {
    while (!atomic_load(&stop)) {
        pr_sup sup = 0;
        EQ(api->sup_new(text(sup_profile), 1, &sup), PR_OK);
        EQ(api->sup_deadline(sup, 1), PR_OK);
        EQ(api->sup_free(sup), PR_OK);
    }
    return nothing;
}

static void child_of_many(void *with) {
    const struct world *world = with;
    pr_sup sup = 0;
    HERE(api->sup_deadline(world->sup, 1) == PR_EFORK);
    HERE(api->sup_new(text(sup_profile), 1, &sup) == PR_OK);
    HERE(api->sup_free(sup) == PR_OK);
    pr_stats stats = {.size = sizeof stats};
    pr_endpoint endpoint;
    pr_txn txn;
    uint32_t need;
    uint64_t number;
    HERE(api->stats(world->ctx, &stats) == PR_EFORK);
    HERE(api->txn_begin(world->ctx, 0, 0, &txn) == PR_EFORK);
    HERE(api->pump(world->ctx, 0, &number) == PR_EFORK);
    HERE(api->resolve(world->ctx, text("web.alice"), text(""), 0, &endpoint, 1, &need, &number) == PR_EFORK);
    HERE(api->destroy(world->ctx) == PR_EFORK);
    begins_anew();
}

/* Whatever another thread held when it came to be, a child neither hangs nor is kept from beginning anew. */
static void a_child_is_not_held_up_by_what_other_threads_held(void) {
#ifdef SANITIZED
    printf("skipped: the sanitizer's own allocator may stay locked in a child of many threads\n");
    return;
#endif
    struct world world = make_world(IDLE);
    pthread_t caller, maker, worker;
    atomic_store(&stop, 0);
    EQ(pthread_create(&caller, NULL, call_on, &world), 0);
    EQ(pthread_create(&maker, NULL, make_and_end, NULL), 0);
    EQ(pthread_create(&worker, NULL, begin_and_free_machines, NULL), 0);
    for (uint32_t round = 0; round < rounds(100); round++) {
        trying("fork %u", round);
        in_child(child_of_many, &world);
    }
    atomic_store(&stop, 1);
    EQ(pthread_join(caller, NULL), 0);
    EQ(pthread_join(maker, NULL), 0);
    EQ(pthread_join(worker, NULL), 0);
    EQ(stats_of(world.ctx).poisoned, 0);
    end_world(&world);
}

const struct test fork_tests[] = {
    {"every_call_tells_a_child_that_it_is_one", every_call_tells_a_child_that_it_is_one},
    {"a_child_begins_anew_and_its_parent_goes_on", a_child_begins_anew_and_its_parent_goes_on},
    {"a_child_is_not_held_up_by_what_other_threads_held", a_child_is_not_held_up_by_what_other_threads_held},
    {NULL, NULL},
};
