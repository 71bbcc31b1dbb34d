/* The first call of a scheduler: load the plugin, give two replicas their ports, print what each job sees, and resolve.
 *
 *   cargo build --release -p portreeve-plugin
 *   cc -Wall -Wextra -Iinclude examples/first_call.c -o first_call
 *   ./first_call target/release/libportreeve_plugin.so
 *
 * A program may be linked with the plugin instead, once that is installed:
 *   cc -DLINKED examples/first_call.c $(pkg-config --cflags --libs portreeve) -o first_call
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "portreeve.h"

static const pr_api *api;

static pr_str text(const char *s) { pr_str t = {s, strlen(s)}; return t; }

/* Every call answers a code; last_error has the words. */
static void must(int64_t code, const char *call) {
    char words[512];
    uint32_t need;
    if (code >= 0) return;
    if (api->last_error(words, sizeof words, &need) != PR_OK) strcpy(words, "no words");
    fprintf(stderr, "%s: %lld: %s\n", call, (long long)code, words);
    exit(1);
}

int main(int argc, char **argv) {
    /* Load. The one symbol hands out a table; both sides say which number of the contract they speak. */
#ifdef LINKED
    int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *) = pr_get_api;
    (void)argc, (void)argv;
#else
    void *so = dlopen(argc > 1 ? argv[1] : "libportreeve_plugin.so", RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *);
    *(void **)&get_api = dlsym(so, "pr_get_api");
    if (get_api == NULL) { fprintf(stderr, "%s\n", dlerror()); return 1; }
#endif
    pr_hostinfo host = {sizeof host, PR_ABI, PR_CAP_ENDPOINTS};
    uint32_t speaks = 0;
    if (get_api(&host, &api, &speaks) != PR_OK) {
        fprintf(stderr, "the plugin speaks version %u; version %u is wanted, and endpoints\n", speaks, PR_ABI);
        return 1;
    }

    /* Once: a context, the hosts, and the ports of a kind of job. Nothing runs yet, so there is nothing to restore. */
    pr_config config = {.size = sizeof config, .max_hosts = 64, .max_allocs = 1000};
    pr_ctx ctx;
    must(api->create(&config, &ctx), "create");
    pr_host hosts[2] = {{.size = sizeof hosts[0], .host = 0, .name = text("n1")}, {.size = sizeof hosts[0], .host = 1, .name = text("n2")}};
    must(api->host_put(ctx, hosts, 2), "host_put");
    pr_port ports[2] = {{.name = text("http"), .count = 1, .proto = PR_TCP}, {.name = text("rpc"), .count = 4, .proto = PR_TCP, .flags = PR_PORT_UNPUBLISHED}};
    pr_profile profile = {.size = sizeof profile, .name = text("web"), .service = text("web.alice"), .ports = ports, .n_ports = 2, .port_size = sizeof ports[0]};
    uint32_t web, conflicts;
    must(api->profile_put(ctx, &profile, &web), "profile_put");
    must(api->restore_end(ctx, 0, 0, &conflicts), "restore_end");

    /* Each cycle: which hosts can take a replica, then all or nothing for both replicas of job 4711. */
    pr_txn txn;
    must(api->txn_begin(ctx, 0, 1000, &txn), "txn_begin");
    pr_need need = {.profile = web};
    uint64_t fits;
    int64_t count = api->feasible(txn, &need, NULL, &fits, NULL, 1);
    must(count, "feasible");
    printf("%lld hosts fit: %#llx\n", (long long)count, (unsigned long long)fits);
    pr_want wants[2] = {{.job = 4711, .replica = 0, .profile = web, .host = 0}, {.job = 4711, .replica = 1, .profile = web, .host = 1}};
    pr_grant grants[2];
    uint16_t numbers[10];
    uint32_t needed;
    must(api->reserve(txn, PR_RESERVE_ALL, wants, 2, grants, numbers, 10, &needed), "reserve");
    /* Here a scheduler writes key, host and numbers to its own log and syncs it: what is committed must be known after a crash. */
    uint64_t commit_no;
    must(api->commit(txn, &commit_no), "commit");

    /* The agents report: where the hosts are reached, and that the replicas answer. */
    for (uint32_t h = 0; h < 2; h++) {
        pr_addr address = {.ip = {10, 0, 0, (uint8_t)(h + 1)}, .family = 4};
        must(api->report_addr(ctx, h, 1, &address, 1), "report_addr");
    }
    for (int r = 0; r < 2; r++) { /* What each job sees. */
        char env[1024];
        must(api->env(ctx, grants[r].id, 0, env, sizeof env, &needed), "env");
        for (const char *v = env; *v != 0; v += strlen(v) + 1) printf("replica %d: %s\n", r, v);
    }
    pr_ready ready[2] = {{.id = grants[0].id, .seq = 1, .run = 1, .state = PR_E_READY}, {.id = grants[1].id, .seq = 1, .run = 1, .state = PR_E_READY}};
    must(api->report_ready(ctx, ready, 2, NULL), "report_ready");

    /* Anybody, from any thread: where clients go. */
    pr_endpoint endpoints[8];
    uint64_t revision, next_ms;
    must(api->resolve(ctx, text("web.alice"), text("http"), 0, endpoints, 8, &needed, &revision), "resolve");
    for (uint32_t e = 0; e < needed; e++)
        printf("web.alice %u.%u.%u.%u:%u\n", endpoints[e].ip[0], endpoints[e].ip[1], endpoints[e].ip[2], endpoints[e].ip[3], endpoints[e].port);

    /* The job ends in two steps: its stop is ordered, its last process is gone. Then the numbers rest. */
    pr_alloc both[2] = {grants[0].id, grants[1].id};
    must(api->release_begin(ctx, both, 2, 0, NULL), "release_begin");
    must(api->release_confirm(ctx, both, 2, 0, 5000, NULL), "release_confirm");
    must(api->pump(ctx, 5000, &next_ms), "pump");
    must(api->resolve(ctx, text("web.alice"), text("http"), 0, endpoints, 8, &needed, &revision), "resolve");
    printf("%u endpoints left; the numbers rest until %llu ms\n", needed, (unsigned long long)next_ms);
    must(api->destroy(ctx), "destroy");
    return 0;
}
