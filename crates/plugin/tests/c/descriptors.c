/* Descriptors that are polled: whose they are, when they are readable, and that none is left behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "test.h"

/* How many descriptors this process has. */
static int open_ones(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = -3; /* `.`, `..` and the folder itself */
    if (all == NULL) return failed(__FILE__, __LINE__, "/proc/self/fd"), 0;
    while (readdir(all) != NULL) count++;
    closedir(all);
    return count;
}

static int readable(int fd) {
    struct pollfd it = {.fd = fd, .events = POLLIN};
    return poll(&it, 1, 0) == 1 && (it.revents & POLLIN);
}

static int closed(int fd) {
    return fcntl(fd, F_GETFD) == -1 && errno == EBADF;
}

/* A context with a profile and nothing held. */
static struct world quiet(void) {
    struct world it = {.fd = -1};
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    it.ctx = make(&config);
    put_hosts(it.ctx, 2);
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    it.profile = put_profile(it.ctx, "web.alice", &http, 1);
    return it;
}

static void start(const struct world *world, uint64_t job) {
    pr_want want = {.job = job, .profile = world->profile};
    uint16_t number;
    uint64_t next;
    hold(world->ctx, &want, &number, 1);
    EQ(api->pump(world->ctx, 0, &next), PR_OK);
}

static void a_watch_has_a_descriptor_from_open_to_close(void) {
    struct world world = quiet();
    int before = open_ones(), fd = -1;
    pr_watch watch;
    EQ(api->watch_open(world.ctx, text("web.alice"), 0, &watch, &fd), PR_OK);
    EQ(open_ones(), before + 1);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    CHECK(!readable(fd));
    start(&world, 1);
    CHECK(readable(fd));
    pr_change change;
    uint32_t n, flags;
    EQ(api->watch_next(watch, &change, 1, &n, &flags), PR_OK);
    EQ(n, 1);
    CHECK(!readable(fd));
    EQ(api->watch_close(watch), PR_OK);
    CHECK(closed(fd));
    EQ(open_ones(), before);
    /* abi 11: whoever has the number now keeps it. */
    int other = dup(2);
    EQ(api->watch_close(watch), PR_ESTALE);
    start(&world, 2);
    CHECK(!closed(other));
    close(other);
    end_world(&world);
}

static void the_end_of_a_context_is_readable_and_closes_all(void) {
    int before = open_ones(), fds[3], shared[3];
    struct world world = quiet();
    pr_watch watch;
    EQ(api->watch_open(world.ctx, text(""), 0, &watch, &fds[0]), PR_OK);
    EQ(api->watch_open(world.ctx, text("nobody.alice"), 0, &watch, &fds[1]), PR_OK);
    EQ(api->wait_fd(world.ctx, &fds[2]), PR_OK);
    EQ(open_ones(), before + 3);
    for (int at = 0; at < 3; at++) {
        shared[at] = dup(fds[at]);
        CHECK(!readable(shared[at]));
    }
    end_world(&world);
    for (int at = 0; at < 3; at++) {
        CHECK(closed(fds[at]));
        CHECK(readable(shared[at]));
        close(shared[at]);
    }
    EQ(open_ones(), before);
}

static void without_a_free_descriptor_nothing_is_made(void) {
    struct world world = quiet();
    struct rlimit usual, none;
    EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
    /* The lowest free number is where the next one would be. */
    int next = dup(2);
    close(next);
    none = usual;
    none.rlim_cur = (rlim_t)next;
    EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    pr_watch watch = 5;
    int fd = -7;
    EQ(api->watch_open(world.ctx, text(""), 0, &watch, &fd), PR_EIO);
    EQ(api->wait_fd(world.ctx, &fd), PR_EIO);
    EQ(watch, 5);
    EQ(fd, -7);
    EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
    EQ(stats_of(world.ctx).watches, 0);
    EQ(api->wait_fd(world.ctx, &fd), PR_OK);
    for (int round = 0; round < MOST_WATCHES; round++) EQ(api->watch_open(world.ctx, text(""), 0, &watch, &fd), PR_OK);
    EQ(api->watch_open(world.ctx, text(""), 0, &watch, &fd), PR_ELIMIT);
    end_world(&world);
}

static void a_child_neither_writes_nor_reads_its_parents_descriptors(void) {
    struct world world = quiet();
    int fd;
    pr_watch watch;
    pr_change change;
    uint32_t n, flags;
    uint64_t next;
    EQ(api->watch_open(world.ctx, text(""), 0, &watch, &fd), PR_OK);
    for (int round = 0; round < 2; round++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            int wrong = api->pump(world.ctx, 0, &next) != PR_EFORK || api->destroy(world.ctx) != PR_EFORK;
            wrong |= api->watch_next(watch, &change, 1, &n, &flags) != PR_EFORK || api->watch_close(watch) != PR_EFORK;
            _exit(wrong);
        }
        int status = -1;
        EQ(waitpid(child, &status, 0), child);
        EQ(status, 0);
        /* Silent in the first round, readable in the second, whatever the child called. */
        EQ(readable(fd), round);
        if (round == 0) start(&world, 1);
    }
    EQ(api->watch_next(watch, &change, 1, &n, &flags), PR_OK);
    EQ(n, 1);
    end_world(&world);
}

static void *sleep_at(void *fd) {
    struct pollfd it = {.fd = *(int *)fd, .events = POLLIN};
    EQ(poll(&it, 1, 30000), 1);
    return NULL;
}

static void who_sleeps_at_a_descriptor_is_woken(void) {
    struct world world = quiet();
    pr_watch watch;
    pr_change change;
    uint32_t n, flags;
    int fd;
    EQ(api->watch_open(world.ctx, text("web.alice"), 0, &watch, &fd), PR_OK);
    for (uint32_t round = 1; round <= rounds(40); round++) {
        pthread_t sleeper;
        EQ(pthread_create(&sleeper, NULL, sleep_at, &fd), 0);
        start(&world, round);
        EQ(pthread_join(sleeper, NULL), 0);
        do EQ(api->watch_next(watch, &change, 1, &n, &flags), PR_OK);
        while (flags & PR_MORE);
    }
    end_world(&world);
}

/* abi 13 */
static void no_watch_or_snapshot_is_named_again(void) {
    struct world world = quiet();
    pr_watch first = 0, watch = 0;
    pr_snap old = 0, snap = 0;
    pr_endpoint endpoint;
    uint64_t revision;
    uint32_t count, before = (uint32_t)open_ones();
    int fd;
    for (uint32_t round = 0; round < rounds(20000); round++) {
        EQ(api->watch_open(world.ctx, text(""), 0, &watch, &fd), PR_OK);
        EQ(api->snap_open(world.ctx, text(""), &snap, &revision, &count), PR_OK);
        CHECK(watch != first && snap != old);
        if (round == 0) first = watch, old = snap;
        else EQ(api->snap_read(old, 0, &endpoint, 1, &count), PR_ESTALE);
        EQ(api->watch_close(watch), PR_OK);
        EQ(api->snap_close(snap), PR_OK);
    }
    EQ(api->watch_close(first), PR_ESTALE);
    EQ(open_ones(), before);
    pr_stats stats = stats_of(world.ctx);
    EQ(stats.watches + stats.snaps, 0);
    end_world(&world);
}

const struct test descriptors_tests[] = {
    {"a_watch_has_a_descriptor_from_open_to_close", a_watch_has_a_descriptor_from_open_to_close},
    {"the_end_of_a_context_is_readable_and_closes_all", the_end_of_a_context_is_readable_and_closes_all},
    {"without_a_free_descriptor_nothing_is_made", without_a_free_descriptor_nothing_is_made},
    {"a_child_neither_writes_nor_reads_its_parents_descriptors", a_child_neither_writes_nor_reads_its_parents_descriptors},
    {"who_sleeps_at_a_descriptor_is_woken", who_sleeps_at_a_descriptor_is_woken},
    {"no_watch_or_snapshot_is_named_again", no_watch_or_snapshot_is_named_again},
    {NULL, NULL},
};
