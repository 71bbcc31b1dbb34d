/* Threads: small stacks, reports and releases beside a cycle, and a context that ends under its callers. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "calls.h"

static void *call_everything(void *nothing) {
    (void)nothing;
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        trying("%s on a small stack", it->name);
        struct world world = make_world(it->phase);
        union value values[PARAMS + 1];
        arguments(it, &world, values);
        int64_t code = it->go(values);
        CHECK(code >= 0);
        if (code >= 0 && strcmp(it->name, "create") == 0) EQ(api->destroy(*(pr_ctx *)values[1].p), PR_OK);
        if (code >= 0 && strcmp(it->name, "destroy") == 0) world.ctx = 0;
        if (code >= 0 && strcmp(it->name, "sup_free") == 0) world.sup = 0;
        if (code >= 0 && strcmp(it->name, "sup_new") == 0) EQ(api->sup_free(*(pr_sup *)values[2].p), PR_OK);
        if (code >= 0 && strcmp(it->name, "sup_load") == 0) EQ(api->sup_free(*(pr_sup *)values[3].p), PR_OK);
        end_world(&world);
    }
    return NULL;
}

/* 128 KiB, of which this thread needs some itself. */
static void every_call_runs_on_a_small_stack(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    EQ(pthread_attr_init(&attributes), 0);
    EQ(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
    EQ(pthread_create(&thread, &attributes, call_everything, NULL), 0);
    EQ(pthread_join(thread, NULL), 0);
    EQ(pthread_attr_destroy(&attributes), 0);
}

/* Ids that the cycle hands to those who release them. */
enum { THREADS = 8, SHELF = 32 };
struct shelf {
    pr_ctx ctx;
    uint32_t profile;
    _Atomic uint64_t ids[SHELF];
    atomic_int done;
    atomic_uint begun, ended, wrong;
};

static void *release_what_comes(void *at) {
    struct shelf *shelf = at;
    uint32_t place = 0;
    while (!atomic_load(&shelf->done)) {
        place = (place + 1) % SHELF;
        uint64_t id = atomic_exchange(&shelf->ids[place], 0);
        if (id == 0) {
            sched_yield();
            continue;
        }
        pr_ready ready = {.id = id, .seq = 1, .run = 1, .state = PR_E_READY};
        /* Its readiness may be told before the commit was published. */
        int32_t code = api->report_ready(shelf->ctx, &ready, 1, NULL);
        if (code != PR_OK) atomic_fetch_add(&shelf->wrong, 1);
        code = api->release_begin(shelf->ctx, &id, 1, 0, NULL);
        if (code == PR_OK) atomic_fetch_add(&shelf->begun, 1);
        code = api->release_confirm(shelf->ctx, &id, 1, PR_REL_NO_COOL, 0, NULL);
        if (code == PR_OK) atomic_fetch_add(&shelf->ended, 1);
        /* Never a second time, and never another's. */
        if (api->release_confirm(shelf->ctx, &id, 1, 0, 0, NULL) != PR_ESTALE) atomic_fetch_add(&shelf->wrong, 1);
    }
    return NULL;
}

static void *read_all_the_time(void *at) {
    struct shelf *shelf = at;
    while (!atomic_load(&shelf->done)) {
        pr_endpoint endpoints[MOST];
        pr_stats stats = {.size = sizeof stats};
        pr_want key = {.job = 1005, .incarnation = PR_ANY}, woken;
        pr_alloc id;
        uint32_t need, n, flags;
        uint64_t revision;
        int32_t code = api->resolve(shelf->ctx, text("web.alice"), text(""), PR_RESOLVE_ALL, endpoints, MOST, &need, &revision);
        int wrong = code != PR_OK || need > MOST;
        for (uint32_t e = 0; code == PR_OK && e < need; e++) wrong |= endpoints[e].port < 20000 || endpoints[e].count != 1;
        wrong |= api->stats(shelf->ctx, &stats) != PR_OK || stats.hosts != 2 || stats.allocs > MOST || stats.poisoned != 0;
        code = api->grant_find(shelf->ctx, &key, &id);
        wrong |= code != PR_OK && code != PR_ENOENT;
        wrong |= api->wait_next(shelf->ctx, &woken, 1, &n, &flags) != PR_OK;
        if (wrong) atomic_fetch_add(&shelf->wrong, 1);
    }
    return NULL;
}

static void threads_release_what_a_cycle_gives(void) {
    struct world world = make_world(IDLE);
    struct shelf shelf = {.ctx = world.ctx, .profile = world.profile};
    pthread_t threads[THREADS], reader;
    for (int t = 0; t < THREADS; t++) EQ(pthread_create(&threads[t], NULL, release_what_comes, &shelf), 0);
    EQ(pthread_create(&reader, NULL, read_all_the_time, &shelf), 0);
    uint32_t given = 0, refused = 0;
    for (uint32_t round = 1; round <= rounds(2000); round++) {
        trying("round %u", round);
        pr_txn txn;
        pr_grant grants[4];
        uint16_t numbers[4];
        uint32_t need;
        uint64_t number, next;
        pr_want wants[4];
        for (uint32_t at = 0; at < 4; at++) wants[at] = (pr_want){.job = 1000 + round, .replica = at, .profile = world.profile, .host = at % 2};
        EQ(api->txn_begin(world.ctx, 0, round, &txn), PR_OK);
        int32_t code = api->reserve(txn, PR_RESERVE_ALL, wants, 4, grants, numbers, 4, &need);
        /* Who is full waits for the others. */
        CHECK(code == PR_OK || code == PR_ELIMIT);
        if (code == PR_OK) EQ(api->commit(txn, &number), PR_OK);
        else EQ(api->abort_(txn), PR_OK);
        refused += code != PR_OK;
        for (uint32_t at = 0; code == PR_OK && at < 4; at++) {
            uint64_t none = 0;
            uint32_t place = (given + at) % SHELF;
            if (atomic_compare_exchange_strong(&shelf.ids[place], &none, grants[at].id)) continue;
            /* No room on the shelf: it ends here. */
            EQ(api->release_confirm(world.ctx, &grants[at].id, 1, PR_REL_NO_COOL, round, NULL), PR_OK);
            atomic_fetch_add(&shelf.ended, 1);
        }
        if (code == PR_OK) given += 4;
        if (round % 3 == 0) EQ(api->pump(world.ctx, round, &next), PR_OK);
    }
    /* What is left is taken by them before they stop. */
    for (uint64_t turn = 0; atomic_load(&shelf.ended) < given && turn < 100000000; turn++) sched_yield();
    atomic_store(&shelf.done, 1);
    for (int t = 0; t < THREADS; t++) EQ(pthread_join(threads[t], NULL), 0);
    EQ(pthread_join(reader, NULL), 0);
    EQ(shelf.ended, given);
    EQ(shelf.wrong, 0);
    uint64_t next;
    EQ(api->pump(world.ctx, 100000, &next), PR_OK);
    pr_stats stats = stats_of(world.ctx);
    EQ(stats.allocs, 1);
    EQ(stats.ports_used, 1);
    EQ(stats.ports_cooling, 0);
    EQ(stats.queued, 0);
    CHECK(refused < rounds(2000));
    end_world(&world);
}

/* Hot calls of two threads: the one that comes second is told so at once, and nothing is mixed up. */
static void *cycle_too(void *at) {
    struct shelf *shelf = at;
    for (uint32_t round = 0; round < rounds(2000); round++) {
        pr_txn txn;
        uint64_t number;
        int32_t code = api->txn_begin(shelf->ctx, 0, 0, &txn);
        if (code == PR_EBUSY) continue;
        pr_need need = {.profile = shelf->profile};
        uint64_t fits;
        int64_t count = api->feasible(txn, &need, NULL, &fits, NULL, 1);
        int wrong = code != PR_OK || (count != 2 && count != PR_EBUSY);
        /* The others only look whether it is free, so that it comes to an end. */
        for (int turn = 0; turn < 1000000; turn++) {
            code = api->commit(txn, &number);
            if (code != PR_EBUSY) break;
        }
        if (wrong || code != PR_OK) atomic_fetch_add(&shelf->wrong, 1);
        atomic_fetch_add(&shelf->ended, 1);
    }
    return NULL;
}

static void a_second_thread_in_a_hot_call_is_told_that_it_is_busy(void) {
    struct world world = make_world(IDLE);
    struct shelf shelf = {.ctx = world.ctx, .profile = world.profile};
    pthread_t threads[4];
    for (int t = 0; t < 4; t++) EQ(pthread_create(&threads[t], NULL, cycle_too, &shelf), 0);
    for (int t = 0; t < 4; t++) EQ(pthread_join(threads[t], NULL), 0);
    EQ(shelf.wrong, 0);
    CHECK(shelf.ended > 0);
    end_world(&world);
}

/* A context that ends while others call: they are answered, and then it is stale for all. */
static void *call_until_it_is_gone(void *at) {
    struct shelf *shelf = at;
    for (uint32_t turn = 0; turn < 100000000; turn++) {
        pr_endpoint endpoint;
        pr_txn txn;
        uint32_t need;
        uint64_t number;
        int32_t code = api->resolve(shelf->ctx, text("web.alice"), text(""), 0, &endpoint, 1, &need, &number);
        if (code == PR_ESTALE) return NULL;
        int wrong = code != PR_OK;
        code = api->txn_begin(shelf->ctx, 0, turn, &txn);
        if (code == PR_OK) {
            code = api->abort_(txn);
            /* Another of these threads, or the end. */
            wrong |= code != PR_OK && code != PR_ESTALE && code != PR_EBUSY;
            for (int again = 0; code == PR_EBUSY && again < 1000000; again++) code = api->abort_(txn);
        } else {
            wrong |= code != PR_EBUSY && code != PR_ESTALE;
        }
        code = api->host_state(shelf->ctx, 1, PR_HOST_UP);
        wrong |= code != PR_OK && code != PR_ESTALE;
        code = api->pump(shelf->ctx, turn, &number);
        wrong |= code != PR_OK && code != PR_ESTALE;
        if (wrong) atomic_fetch_add(&shelf->wrong, 1);
        atomic_fetch_add(&shelf->begun, 1);
    }
    atomic_fetch_add(&shelf->wrong, 1);
    return NULL;
}

static void a_context_may_end_under_those_who_call_it(void) {
    for (uint32_t round = 0; round < rounds(40); round++) {
        trying("round %u", round);
        struct world world = make_world(IDLE);
        struct shelf shelf = {.ctx = world.ctx};
        pthread_t threads[4];
        for (int t = 0; t < 4; t++) EQ(pthread_create(&threads[t], NULL, call_until_it_is_gone, &shelf), 0);
        while (atomic_load(&shelf.begun) < 20) sched_yield();
        end_world(&world);
        for (int t = 0; t < 4; t++) EQ(pthread_join(threads[t], NULL), 0);
        EQ(shelf.wrong, 0);
    }
}

/* Words of a failure belong to the thread that had it. */
static void *fail_alone(void *at) {
    const uint64_t *number = at;
    char said[512];
    uint32_t need;
    for (int n = 0; n < 200; n++) {
        pr_alloc id;
        pr_want key = {.job = *number};
        if (api->grant_find(0xdead0000 + *number, &key, &id) != PR_ESTALE) return NULL;
        char wanted[32];
        snprintf(wanted, sizeof wanted, "0xdead%04llx", (unsigned long long)*number);
        if (api->last_error(said, sizeof said, &need) != PR_OK || strstr(said, wanted) == NULL) return NULL;
    }
    return at;
}

static void each_thread_has_its_own_last_error(void) {
    pthread_t threads[THREADS];
    uint64_t numbers[THREADS];
    for (uint64_t t = 0; t < THREADS; t++) {
        numbers[t] = 0x1000 + t;
        EQ(pthread_create(&threads[t], NULL, fail_alone, &numbers[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        void *answer;
        EQ(pthread_join(threads[t], &answer), 0);
        CHECK(answer == &numbers[t]);
    }
}

const struct test threads_tests[] = {
    {"every_call_runs_on_a_small_stack", every_call_runs_on_a_small_stack},
    {"threads_release_what_a_cycle_gives", threads_release_what_a_cycle_gives},
    {"a_second_thread_in_a_hot_call_is_told_that_it_is_busy", a_second_thread_in_a_hot_call_is_told_that_it_is_busy},
    {"a_context_may_end_under_those_who_call_it", a_context_may_end_under_those_who_call_it},
    {"each_thread_has_its_own_last_error", each_thread_has_its_own_last_error},
    {NULL, NULL},
};
