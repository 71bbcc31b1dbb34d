/* The small world that tests call into, and memory that ends where the next byte faults. */
#include <sys/mman.h>
#include <unistd.h>
#include "test.h"

enum { ROOM = 1 << 16, SLOTS = 16 };

void *guarded(unsigned slot, size_t n) {
    static unsigned char *ends[SLOTS];
    if (slot >= SLOTS || n > ROOM) abort();
    if (ends[slot] == NULL) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        unsigned char *at = mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || mprotect(at + ROOM, page, PROT_NONE) != 0) abort();
        ends[slot] = at + ROOM;
    }
    return memset(ends[slot] - n, 0xa5, n);
}

void *guarded_copy(unsigned slot, const void *from, size_t n) {
    return memcpy(guarded(slot, n), from, n);
}

uint64_t roll(struct dice *d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t below(struct dice *d, uint32_t end) {
    return (uint32_t)((roll(d) >> 32) * end >> 32);
}

const char *const sup_profile = "{\"name\":\"web\",\"command\":[\"/bin/true\"]}";

pr_config small_config(uint32_t flags) {
    pr_config config = {.size = sizeof config, .flags = flags, .max_hosts = MOST, .max_allocs = MOST, .max_profiles = MOST,
                        .max_waits = MOST, .max_watches = MOST_WATCHES, .max_ports = 4096};
    return config;
}

pr_ctx make(const pr_config *config) {
    pr_ctx ctx = 0;
    EQ(api->create(config, &ctx), PR_OK);
    return ctx;
}

void put_hosts(pr_ctx ctx, uint32_t n) {
    for (uint32_t at = 0; at < n; at++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", at);
        pr_host host = {.size = sizeof host, .host = at, .name = text(name)};
        EQ(api->host_put(ctx, &host, 1), PR_OK);
    }
}

uint32_t put_profile(pr_ctx ctx, const char *service, const pr_port *ports, uint32_t n) {
    pr_profile profile = {.size = sizeof profile, .name = text("web"), .service = text(service), .ports = ports, .n_ports = n,
                          .port_size = sizeof *ports};
    uint32_t id = PR_ANY;
    EQ(api->profile_put(ctx, &profile, &id), PR_OK);
    return id;
}

pr_grant hold(pr_ctx ctx, const pr_want *want, uint16_t *ports, uint32_t cap) {
    pr_txn txn;
    pr_grant grant = {0};
    uint32_t need;
    uint64_t number;
    EQ(api->txn_begin(ctx, 0, 0, &txn), PR_OK);
    EQ(api->reserve(txn, 0, want, 1, &grant, ports, cap, &need), PR_OK);
    EQ(api->commit(txn, &number), PR_OK);
    return grant;
}

struct world make_world(enum phase phase) {
    struct world it = {.fd = -1};
    pr_config config = small_config(phase == RESTORING ? 0 : PR_CFG_NO_RESTORE);
    it.ctx = make(&config);
    put_hosts(it.ctx, 2);
    pr_port http = {.name = text("http"), .proto = PR_TCP};
    it.profile = put_profile(it.ctx, "web.alice", &http, 1);
    EQ(api->sup_new(text(sup_profile), 1, &it.sup), PR_OK);
    if (phase == RESTORING) return it;
    pr_want want = {.job = 1, .profile = it.profile};
    it.held = hold(it.ctx, &want, &it.number, 1).id;
    pr_addr address = {.ip = {10, 0, 0, 1}, .family = 4};
    EQ(api->report_addr(it.ctx, 0, 1, &address, 1), PR_OK);
    pr_want waiting = {.job = 4, .profile = it.profile, .host = PR_ANY};
    EQ(api->wait_put(it.ctx, &waiting, 1, NULL), PR_OK);
    uint64_t next, revision;
    uint32_t count;
    EQ(api->pump(it.ctx, 1000, &next), PR_OK);
    EQ(api->snap_open(it.ctx, text("web.alice"), &it.snap, &revision, &count), PR_OK);
    EQ(api->watch_open(it.ctx, text(""), 0, &it.watch, &it.fd), PR_OK);
    if (phase == IDLE) return it;
    EQ(api->txn_begin(it.ctx, phase == IN_WHAT_IF ? PR_TXN_WHATIF : 0, 1000, &it.txn), PR_OK);
    EQ(api->mark(it.txn, &it.mark), PR_OK);
    return it;
}

void end_world(struct world *world) {
    if (world->ctx != 0) EQ(api->destroy(world->ctx), PR_OK);
    if (world->sup != 0) EQ(api->sup_free(world->sup), PR_OK);
    *world = (struct world){.fd = -1};
}

pr_stats stats_of(pr_ctx ctx) {
    pr_stats stats = {.size = sizeof stats};
    EQ(api->stats(ctx, &stats), PR_OK);
    return stats;
}

int same_state(const pr_stats *a, const pr_stats *b) {
    pr_stats left = *a, right = *b;
    left.busy = right.busy = left.stale = right.stale = left.bytes = right.bytes = 0;
    return memcmp(&left, &right, sizeof left) == 0;
}
