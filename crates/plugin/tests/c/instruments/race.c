/* Readers in threads of their own against one that decides and reports: for the thread sanitizer, and alone for what readers see, which is
 * always a whole answer of one moment.
 *
 *   race PLUGIN ROUNDS
 */
#include <pthread.h>
#include <stdatomic.h>
#include "host.h"

#ifdef __SANITIZE_THREAD__
/* What the Rust compiler calls, and this one's library has under the plain names. */
void *__tsan_memcpy(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
void *__tsan_memmove(void *to, const void *from, size_t n) { return memmove(to, from, n); }
void *__tsan_memset(void *to, int byte, size_t n) { return memset(to, byte, n); }
#endif

enum { HOSTS = 4, REPLICAS = 8, READERS = 4, RELEASERS = 1, MOST = 64 };
static pr_ctx ctx;
static uint32_t web;
static atomic_int over;
static _Atomic uint64_t last_id, reads, released;
static pr_str none;

static void warm(void) {
    uint32_t need;
    CHECK_EQ(api->last_error(NULL, 0, &need), PR_ENOSPC);
}

/* Everything a reader may call, until the writer is through. */
static void *reader(void *unused) {
    (void)unused;
    warm();
    uint64_t newest = 0;
    pr_watch watch = 0;
    int32_t fd;
    const int watching = api->watch_open(ctx, none, 0, &watch, &fd) == PR_OK;
    while (!atomic_load(&over)) {
        pr_endpoint endpoints[MOST];
        uint32_t need, n, flags, count;
        uint64_t revision = 0;
        const int32_t code = api->resolve(ctx, str("web.alice"), none, PR_RESOLVE_ALL, endpoints, MOST, &need, &revision);
        CHECK(code == PR_OK || code == PR_ENOSPC);
        if (code == PR_OK) {
            CHECK(revision >= newest);
            newest = revision;
            for (uint32_t i = 0; i < need; i++) {
                CHECK(endpoints[i].port >= 20000 && endpoints[i].port <= 32767);
                CHECK(endpoints[i].revision <= revision);
                for (uint32_t j = 0; j < i; j++) CHECK(endpoints[i].host != endpoints[j].host || endpoints[i].port != endpoints[j].port);
            }
        }
        CHECK_EQ(api->resolve(ctx, str("nobody.alice"), none, 0, endpoints, 1, &need, &revision), PR_ENOENT);
        pr_stats stats = {.size = sizeof stats};
        OK(api->stats(ctx, &stats));
        CHECK_EQ(stats.hosts, HOSTS);
        const pr_want key = {.job = 1, .replica = 0, .incarnation = PR_ANY};
        pr_alloc id;
        const int32_t found = api->grant_find(ctx, &key, &id);
        CHECK(found == PR_OK || found == PR_ENOENT || found == PR_EBUSY);
        char words[256];
        OK(api->last_error(words, sizeof words, &need));
        pr_want told;
        OK(api->wait_next(ctx, &told, 1, &n, &flags));
        pr_snap snap;
        if (api->snap_open(ctx, str("web.alice"), &snap, &revision, &count) == PR_OK) {
            uint32_t from = 0;
            do {
                OK(api->snap_read(snap, from, endpoints, 3, &n));
                from += n;
            } while (n > 0);
            CHECK_EQ(from, count);
            OK(api->snap_close(snap));
        }
        if (watching) {
            pr_change changes[8];
            OK(api->watch_next(watch, changes, 8, &n, &flags));
        }
        char name[64];
        (void)api->text(ctx, PR_TEXT_HOST, 0, name, sizeof name, &need);
        atomic_fetch_add(&reads, 1);
    }
    if (watching) OK(api->watch_close(watch));
    return NULL;
}

/* Releases from outside the cycle, at any moment. */
static void *releaser(void *unused) {
    (void)unused;
    warm();
    uint64_t before = 0;
    while (!atomic_load(&over)) {
        const uint64_t id = atomic_load(&last_id);
        if (id == before) continue;
        before = id;
        int32_t code = api->release_begin(ctx, &id, 1, 0, NULL);
        CHECK(code == PR_OK || code == PR_ESTALE || code == PR_ESTATE);
        code = api->release_confirm(ctx, &id, 1, PR_REL_NO_COOL, 0, NULL);
        CHECK(code == PR_OK || code == PR_ESTALE || code == PR_ESTATE);
        if (code == PR_OK) atomic_fetch_add(&released, 1);
    }
    return NULL;
}

static void write_once(uint64_t round) {
    pr_txn txn;
    pr_want wants[REPLICAS];
    pr_grant grants[REPLICAS];
    uint16_t ports[REPLICAS];
    uint32_t need;
    uint64_t no, next;
    const uint64_t now = round;
    OK(api->txn_begin(ctx, 0, now, &txn));
    for (uint32_t r = 0; r < REPLICAS; r++) wants[r] = (pr_want){.job = round + 1, .replica = r, .profile = web, .host = r % HOSTS};
    OK(api->reserve(txn, 0, wants, REPLICAS, grants, ports, REPLICAS, &need));
    if (round % 7 == 6) {
        OK(api->abort_(txn));
        return;
    }
    OK(api->commit(txn, &no));
    atomic_store(&last_id, grants[0].id);
    if (round % 3 != 0) OK(api->pump(ctx, now, &next));
    for (uint32_t r = 1; r < REPLICAS; r++) {
        const pr_ready ready = {.id = grants[r].id, .seq = 1, .run = 1, .state = r % 2 ? PR_E_READY : PR_E_NOT_READY};
        OK(api->report_ready(ctx, &ready, 1, NULL));
    }
    const uint32_t host = (uint32_t)(round % HOSTS);
    const pr_addr address = {.ip = {10, 0, (uint8_t)round, (uint8_t)host}, .family = 4};
    OK(api->report_addr(ctx, host, round + 1, &address, round % 11 != 0));
    OK(api->host_state(ctx, host, PR_HOST_UP));
    const pr_want waits = {.job = 1000000 + round, .profile = web, .host = PR_ANY};
    OK(api->wait_put(ctx, &waits, 1, NULL));
    for (uint32_t r = 1; r < REPLICAS; r++) OK(api->release_confirm(ctx, &grants[r].id, 1, PR_REL_NO_COOL, now, NULL));
    OK(api->pump(ctx, now, &next));
    OK(api->wait_drop(ctx, &waits, 1, NULL));
    uint32_t done;
    if (round > 2) OK(api->release_job(ctx, round - 2, PR_ANY, 1, now, &done)); /* what the other thread missed */
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const uint64_t rounds = strtoull(argv[2], NULL, 10);
    load_plugin(argv[1]);
    const pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = HOSTS, .max_allocs = 4096, .max_ports = 256, .max_waits = 64};
    OK(api->create(&config, &ctx));
    for (uint32_t h = 0; h < HOSTS; h++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", h);
        const pr_host host = {.size = sizeof host, .host = h, .name = str(name)};
        OK(api->host_put(ctx, &host, 1));
    }
    const pr_port port = {.name = str("http"), .proto = PR_TCP};
    const pr_profile profile = {.size = sizeof profile, .name = str("web"), .service = str("web.alice"), .ports = &port, .n_ports = 1, .port_size = sizeof port};
    OK(api->profile_put(ctx, &profile, &web));
    pthread_t threads[READERS + RELEASERS];
    for (int t = 0; t < READERS + RELEASERS; t++) CHECK_EQ(pthread_create(&threads[t], NULL, t < READERS ? reader : releaser, NULL), 0);
    for (uint64_t round = 0; round < rounds; round++) write_once(round);
    atomic_store(&over, 1);
    for (int t = 0; t < READERS + RELEASERS; t++) CHECK_EQ(pthread_join(threads[t], NULL), 0);
    OK(api->destroy(ctx));
    printf("%llu rounds, %llu reads, %llu releases from another thread\n", (unsigned long long)rounds, (unsigned long long)atomic_load(&reads),
           (unsigned long long)atomic_load(&released));
    return 0;
}
