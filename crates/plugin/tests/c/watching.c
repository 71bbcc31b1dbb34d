/* Snapshots, watches and exports under callers that mix them up, begin anywhere and stop anywhere. */
#include <pthread.h>
#include <stdatomic.h>
#include "test.h"

/* A context of one host with `n` grants of web.alice, of two ports each, published. */
static struct world many(uint32_t n) {
    struct world it = {.fd = -1};
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    config.max_allocs = n + 8;
    it.ctx = make(&config);
    put_hosts(it.ctx, 2);
    const pr_port ports[] = {{.name = text("http"), .proto = PR_TCP}, {.name = text("rpc"), .proto = PR_TCP_UDP}};
    it.profile = put_profile(it.ctx, "web.alice", ports, 2);
    for (uint32_t job = 1; job <= n; job++) {
        pr_want want = {.job = job, .profile = it.profile, .host = job % 2};
        uint16_t numbers[2];
        hold(it.ctx, &want, numbers, 2);
    }
    uint64_t next;
    EQ(api->pump(it.ctx, 0, &next), PR_OK);
    return it;
}

static void a_snapshot_is_read_from_anywhere(void) {
    enum { N = 10, ROWS = 2 * N };
    struct world world = many(N), other = many(1);
    pr_snap snap, all, late;
    uint64_t revision, next;
    uint32_t count, n;
    EQ(api->snap_open(world.ctx, text("web.alice"), &snap, &revision, &count), PR_OK);
    EQ(count, ROWS);
    EQ(api->snap_open(world.ctx, text(""), &all, &revision, &count), PR_OK);
    EQ(count, ROWS);
    static pr_endpoint whole[ROWS];
    EQ(api->snap_read(snap, 0, whole, ROWS, &n), PR_OK);
    EQ(n, ROWS);
    /* Everything ends; the version stays as it was. */
    for (uint32_t job = 1; job <= N; job++) EQ(api->release_job(world.ctx, job, PR_ANY, 1, 1, &n), PR_OK);
    EQ(api->pump(world.ctx, 1, &next), PR_OK);
    EQ(api->profile_drop(world.ctx, world.profile), PR_OK);
    EQ(api->pump(world.ctx, 1, &next), PR_OK);
    EQ(api->snap_open(world.ctx, text("web.alice"), &late, &revision, &count), PR_ENOENT);
    static const uint32_t caps[] = {1, 3, ROWS - 1, ROWS, 64};
    for (uint32_t from = 0; from <= ROWS + 2; from++) {
        for (unsigned c = 0; c < sizeof caps / sizeof *caps; c++) {
            trying("from %u with room for %u", from, caps[c]);
            pr_endpoint *some = guarded(0, caps[c] * sizeof *some);
            uint32_t left = from < ROWS ? ROWS - from : 0, want = left < caps[c] ? left : caps[c];
            EQ(api->snap_read(snap, from, some, caps[c], &n), PR_OK);
            EQ(n, want);
            CHECK(n != want || want == 0 || memcmp(some, whole + from, want * sizeof *some) == 0);
            EQ(api->snap_read(all, from, some, caps[c], &n), PR_OK);
            EQ(n, want);
        }
        n = 77;
        EQ(api->snap_read(snap, from, NULL, 0, &n), from < ROWS ? PR_ENOSPC : PR_OK);
        EQ(n, from < ROWS ? 77 : 0);
    }
    static const uint32_t far[] = {1u << 16, 1u << 31, UINT32_MAX - 1, UINT32_MAX};
    for (unsigned at = 0; at < 4; at++) {
        EQ(api->snap_read(snap, far[at], guarded(0, sizeof *whole), UINT32_MAX, &n), PR_OK);
        EQ(n, 0);
    }
    /* Its kind and its context are in the id. */
    uint32_t flags;
    pr_change change;
    EQ(api->snap_close(other.ctx), PR_ESTALE);
    EQ(api->watch_close(snap), PR_ESTALE);
    EQ(api->watch_next(snap, &change, 1, &n, &flags), PR_ESTALE);
    EQ(api->snap_close(snap), PR_OK);
    EQ(api->destroy(world.ctx), PR_OK);
    world.ctx = 0;
    EQ(api->snap_read(all, 0, whole, 1, &n), PR_ESTALE);
    EQ(api->snap_close(all), PR_ESTALE);
    EQ(stats_of(other.ctx).snaps, 0);
    end_world(&other);
}

static void snapshots_end_at_their_number_and_leave_nothing(void) {
    enum { MANY = 1024 };
    static pr_snap snaps[MANY];
    struct world world = many(2);
    uint64_t revision, bytes = stats_of(world.ctx).bytes;
    uint32_t count;
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t at = 0; at < MANY; at++) EQ(api->snap_open(world.ctx, text("web.alice"), &snaps[at], &revision, &count), PR_OK);
        pr_snap more = 7;
        EQ(api->snap_open(world.ctx, text("web.alice"), &more, &revision, &count), PR_ELIMIT);
        EQ(more, 7);
        EQ(stats_of(world.ctx).snaps, MANY);
        for (uint32_t at = 0; at < MANY; at++) EQ(api->snap_close(snaps[(at * 7) % MANY]), PR_OK);
        EQ(stats_of(world.ctx).snaps, 0);
    }
    EQ(stats_of(world.ctx).bytes, bytes);
    /* Those that are open end with their context. */
    for (uint32_t at = 0; at < MANY; at++) EQ(api->snap_open(world.ctx, text(""), &snaps[at], &revision, &count), PR_OK);
    end_world(&world);
}

/* Reads all that a watch has, `cap` at a time; how many changes there were, and the flags of the last call. */
static uint32_t drain(pr_watch watch, uint32_t cap, uint32_t *flags) {
    uint32_t sum = 0, n = 0;
    uint64_t revision = 0;
    for (int turn = 0; turn < 1000; turn++) {
        pr_change *changes = guarded(1, cap * sizeof *changes);
        EQ(api->watch_next(watch, changes, cap, &n, flags), PR_OK);
        CHECK(n <= cap);
        for (uint32_t at = 0; at < n && at < cap; at++) {
            CHECK(changes[at].revision >= revision && changes[at].kind >= PR_CH_UPSERT && changes[at].kind <= PR_CH_SERVICE_GONE);
            EQ(changes[at].flags, 0);
            revision = changes[at].revision;
        }
        sum += n;
        if (!(*flags & PR_MORE)) return sum;
        CHECK(n > 0);
    }
    failed(__FILE__, __LINE__, "it never ends");
    return sum;
}

static void a_watch_is_read_one_by_one_and_from_any_revision(void) {
    enum { N = 10, ROWS = 2 * N };
    struct world world = many(N);
    pr_watch watch;
    pr_snap snap;
    int fd;
    uint32_t flags, n, count;
    uint64_t revision;
    EQ(api->snap_open(world.ctx, text(""), &snap, &revision, &count), PR_OK);
    static const uint32_t caps[] = {1, 2, 3, 19, 20, 21};
    for (unsigned c = 0; c < sizeof caps / sizeof *caps; c++) {
        trying("room for %u", caps[c]);
        EQ(api->watch_open(world.ctx, text("web.alice"), 0, &watch, &fd), PR_OK);
        /* Room for none says that there is more, and loses nothing. */
        for (int turn = 0; turn < 3; turn++) {
            n = 77;
            EQ(api->watch_next(watch, NULL, 0, &n, &flags), PR_OK);
            EQ(n, 0);
            EQ(flags, PR_MORE);
        }
        EQ(drain(watch, caps[c], &flags), ROWS);
        EQ(flags, 0);
        EQ(drain(watch, caps[c], &flags), 0);
        EQ(api->watch_next(watch, NULL, 0, &n, &flags), PR_OK);
        EQ(flags, 0);
        EQ(api->watch_close(watch), PR_OK);
    }
    EQ(api->watch_open(world.ctx, text(""), revision, &watch, &fd), PR_OK);
    EQ(drain(watch, 4, &flags), 0);
    EQ(flags, 0);
    EQ(api->watch_close(watch), PR_OK);
    const uint64_t ahead[] = {revision + 1, revision + 1000, 1ull << 63, UINT64_MAX - 1, UINT64_MAX};
    for (unsigned at = 0; at < sizeof ahead / sizeof *ahead; at++) {
        trying("since %llu, of %llu", (unsigned long long)ahead[at], (unsigned long long)revision);
        EQ(api->watch_open(world.ctx, text("web.alice"), ahead[at], &watch, &fd), PR_OK);
        EQ(drain(watch, 4, &flags), 0);
        EQ(flags, PR_RESET);
        /* Then it goes on from here: the next change is told, once. */
        pr_want want = {.job = 100 + at, .profile = world.profile};
        uint16_t numbers[2];
        uint64_t next;
        hold(world.ctx, &want, numbers, 2);
        EQ(api->pump(world.ctx, 0, &next), PR_OK);
        CHECK(drain(watch, 1, &flags) >= 2);
        EQ(flags, 0);
        EQ(api->watch_close(watch), PR_OK);
    }
    end_world(&world);
}

/* abi 13, as the threads of a reader that opens and closes meet it. */
static void an_old_watch_or_snapshot_is_never_a_new_one(void) {
    const uint32_t most = rounds(getenv("PORTREEVE_LONG") != NULL ? 1u << 20 : 1u << 11);
    struct world world = many(1);
    uint64_t watches[64] = {0}, snaps[64] = {0}, revision;
    uint32_t n, flags, count;
    for (uint32_t round = 0; round < most; round++) {
        trying("round %u", round);
        pr_watch watch;
        pr_snap snap;
        pr_change change;
        pr_endpoint endpoint;
        int fd;
        EQ(api->watch_open(world.ctx, text("web.alice"), 0, &watch, &fd), PR_OK);
        EQ(api->snap_open(world.ctx, text("web.alice"), &snap, &revision, &count), PR_OK);
        unsigned at = round % 64;
        CHECK(watch != watches[at] && snap != snaps[at] && watch != snap);
        EQ(api->watch_next(watches[at], &change, 1, &n, &flags), PR_ESTALE);
        EQ(api->watch_close(watches[at]), PR_ESTALE);
        EQ(api->snap_read(snaps[at], 0, &endpoint, 1, &n), PR_ESTALE);
        EQ(api->snap_close(snaps[at]), PR_ESTALE);
        EQ(api->snap_read(snap, 0, &endpoint, 1, &n), PR_OK);
        EQ(api->watch_close(watch), PR_OK);
        EQ(api->snap_close(snap), PR_OK);
        /* One place keeps the first ids for ever. */
        if (at != 0 || round == 0) watches[at] = watch, snaps[at] = snap;
    }
    pr_stats stats = stats_of(world.ctx);
    EQ(stats.watches, 0);
    EQ(stats.snaps, 0);
    end_world(&world);
}

static void a_cursor_of_nobodys_making_is_refused_or_ends(void) {
    enum { N = 10 };
    struct world world = many(N);
    uint32_t done, n, n_ports, need;
    uint64_t next;
    /* Some of it rests. */
    EQ(api->release_job(world.ctx, 1, PR_ANY, 1, 0, &done), PR_OK);
    EQ(api->pump(world.ctx, 0, &next), PR_OK);
    pr_stats was = stats_of(world.ctx);
    struct dice d = {1};
    const uint64_t odd[] = {1, N, N + 1, 1ull << 16, 1ull << 31, 1ull << 32, 1ull << 48, 1ull << 62, 1ull << 63, UINT64_MAX - 1, UINT64_MAX};
    for (uint32_t at = 0; at < rounds(2000); at++) {
        uint64_t start = at < sizeof odd / sizeof *odd ? odd[at] : roll(&d) >> below(&d, 64), cursor = start;
        trying("a cursor of %#llx", (unsigned long long)start);
        for (uint32_t turn = 0;; turn++) {
            pr_rec *records = guarded(0, 2 * sizeof *records);
            uint16_t *ports = guarded(1, 256 * sizeof *ports);
            n = 77;
            int32_t code = api->export_(world.ctx, &cursor, records, 2, ports, 256, &n, &n_ports);
            CHECK(code == PR_OK || code == PR_EINVAL || code == PR_ESTALE);
            if (code != PR_OK || n == 0) break;
            CHECK(n <= 2 && n_ports <= 256);
            for (uint32_t r = 0; r < n && n <= 2; r++) CHECK(records[r].port_off + records[r].n_ports <= n_ports);
            if (turn > 200000) {
                failed(__FILE__, __LINE__, "it never ends");
                break;
            }
        }
    }
    /* The same of the numbers of a host. */
    pr_txn txn;
    EQ(api->txn_begin(world.ctx, 0, 0, &txn), PR_OK);
    for (uint32_t at = 0; at < rounds(2000); at++) {
        uint32_t cursor = at < sizeof odd / sizeof *odd ? (uint32_t)odd[at] : (uint32_t)(roll(&d) >> below(&d, 64));
        trying("a cursor of %#x", cursor);
        for (uint32_t turn = 0;; turn++) {
            pr_held *held = guarded(0, 2 * sizeof *held);
            int32_t code = api->holders(txn, below(&d, 2), &cursor, held, 2, &need);
            CHECK(code == PR_OK || code == PR_EINVAL || code == PR_ESTALE);
            if (code != PR_OK || need == 0) break;
            CHECK(need <= 2);
            if (turn > 200000) {
                failed(__FILE__, __LINE__, "it never ends");
                break;
            }
        }
    }
    EQ(api->abort_(txn), PR_OK);
    pr_stats is = stats_of(world.ctx);
    was.aborts++;
    CHECK(same_state(&was, &is));
    end_world(&world);
}

/* Between the pieces hosts change places, leave and come, and grants come and go: what stays is told once. */
static void what_stays_is_exported_once_whatever_happens_between_pieces(void) {
    enum { N = 40 };
    struct world world = many(N);
    unsigned char seen[N + 1] = {0};
    uint64_t cursor = 0, next;
    uint32_t n = 1, n_ports, done;
    for (uint32_t piece = 0; n > 0 && piece < 10 * N; piece++) {
        trying("piece %u", piece);
        pr_rec rec[3];
        uint16_t ports[256];
        EQ(api->export_(world.ctx, &cursor, rec, 3, ports, 256, &n, &n_ports), PR_OK);
        for (uint32_t at = 0; at < n && n <= 3; at++) {
            if (rec[at].state != PR_P_HELD) continue;
            if (rec[at].who.job > N) continue;
            seen[rec[at].who.job]++;
            EQ(rec[at].n_ports, 2);
        }
        uint32_t flip = piece % 2;
        pr_host swapped[2] = {{.size = sizeof(pr_host), .host = 1 - flip, .name = text("n0")}, {.size = sizeof(pr_host), .host = flip, .name = text("n1")}};
        EQ(api->host_put(world.ctx, swapped, 2), PR_OK);
        /* Every third of those that were there ends, as a new one comes into its place. */
        uint64_t ending = 3 * (uint64_t)piece + 3;
        if (ending <= N) EQ(api->release_job(world.ctx, ending, PR_ANY, 1, 0, &done), PR_OK);
        EQ(api->pump(world.ctx, 0, &next), PR_OK);
        pr_want want = {.job = 1000 + piece, .profile = world.profile, .host = flip};
        uint16_t numbers[2];
        if (piece < 8) hold(world.ctx, &want, numbers, 2);
    }
    EQ(n, 0);
    for (uint32_t job = 1; job <= N; job++) {
        trying("job %u", job);
        CHECK(job % 3 == 0 ? seen[job] <= 1 : seen[job] == 1);
    }
    end_world(&world);
}

struct crowd {
    pr_ctx ctx;
    _Atomic uint64_t watch, snap;
    atomic_int done;
    atomic_uint wrong, closed;
};

static void *close_what_others_read(void *at) {
    struct crowd *crowd = at;
    while (!atomic_load(&crowd->done)) {
        uint64_t watch = atomic_load(&crowd->watch), snap = atomic_load(&crowd->snap);
        pr_change changes[2];
        pr_endpoint endpoints[2];
        uint32_t n, flags;
        int32_t code = api->watch_next(watch, changes, 2, &n, &flags);
        if (code != PR_OK && code != PR_ESTALE && code != PR_EBUSY) atomic_fetch_add(&crowd->wrong, 1);
        code = api->snap_read(snap, 0, endpoints, 2, &n);
        if (code != PR_OK && code != PR_ESTALE) atomic_fetch_add(&crowd->wrong, 1);
        if (api->watch_close(watch) == PR_OK) atomic_fetch_add(&crowd->closed, 1);
        if (api->snap_close(snap) == PR_OK) atomic_fetch_add(&crowd->closed, 1);
    }
    return NULL;
}

/* Of several that close one thing exactly one is told that it did. */
static void one_of_those_who_close_does(void) {
    enum { CLOSERS = 4 };
    struct world world = many(3);
    struct crowd crowd = {.ctx = world.ctx};
    pthread_t threads[CLOSERS];
    for (int t = 0; t < CLOSERS; t++) EQ(pthread_create(&threads[t], NULL, close_what_others_read, &crowd), 0);
    unsigned opened = 0;
    for (uint32_t round = 0; round < rounds(500); round++) {
        pr_watch watch;
        pr_snap snap;
        int fd;
        uint64_t revision;
        uint32_t count;
        int32_t code = api->watch_open(world.ctx, text("web.alice"), 0, &watch, &fd);
        if (code == PR_OK) opened++, atomic_store(&crowd.watch, watch);
        CHECK(code == PR_OK || code == PR_ELIMIT);
        code = api->snap_open(world.ctx, text(""), &snap, &revision, &count);
        if (code == PR_OK) opened++, atomic_store(&crowd.snap, snap);
        CHECK(code == PR_OK);
        /* Each is closed before the next one, or it would never be. */
        for (uint64_t turn = 0; atomic_load(&crowd.closed) < opened && turn < 100000000; turn++) continue;
    }
    atomic_store(&crowd.done, 1);
    for (int t = 0; t < CLOSERS; t++) EQ(pthread_join(threads[t], NULL), 0);
    EQ(crowd.closed, opened);
    EQ(crowd.wrong, 0);
    EQ(stats_of(world.ctx).watches, 0);
    EQ(stats_of(world.ctx).snaps, 0);
    end_world(&world);
}

const struct test watching_tests[] = {
    {"a_snapshot_is_read_from_anywhere", a_snapshot_is_read_from_anywhere},
    {"snapshots_end_at_their_number_and_leave_nothing", snapshots_end_at_their_number_and_leave_nothing},
    {"a_watch_is_read_one_by_one_and_from_any_revision", a_watch_is_read_one_by_one_and_from_any_revision},
    {"an_old_watch_or_snapshot_is_never_a_new_one", an_old_watch_or_snapshot_is_never_a_new_one},
    {"a_cursor_of_nobodys_making_is_refused_or_ends", a_cursor_of_nobodys_making_is_refused_or_ends},
    {"what_stays_is_exported_once_whatever_happens_between_pieces", what_stays_is_exported_once_whatever_happens_between_pieces},
    {"one_of_those_who_close_does", one_of_those_who_close_does},
    {NULL, NULL},
};
