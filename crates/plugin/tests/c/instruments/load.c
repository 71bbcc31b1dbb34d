/* What it costs a process to have the plugin: nanoseconds of dlopen, and its threads before, after the load, and after a whole cycle.
 *
 *   load PLUGIN
 */
#include <dirent.h>
#include <time.h>
#include "host.h"

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    CHECK(tasks != NULL);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) n += task->d_name[0] != '.';
    closedir(tasks);
    return n;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const int before = threads();
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    CHECK(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) != NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    const int loaded = threads();
    load_plugin(argv[1]);
    pr_ctx ctx;
    pr_txn txn;
    uint32_t web, need;
    uint64_t no, next;
    const pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE};
    const pr_host host = {.size = sizeof host, .name = str("n1")};
    const pr_port port = {.name = str("http"), .proto = PR_TCP};
    const pr_profile profile = {.size = sizeof profile, .name = str("web"), .service = str("web.alice"), .ports = &port, .n_ports = 1, .port_size = sizeof port};
    OK(api->create(&config, &ctx));
    OK(api->host_put(ctx, &host, 1));
    OK(api->profile_put(ctx, &profile, &web));
    OK(api->txn_begin(ctx, 0, 0, &txn));
    const pr_want want = {.job = 1, .profile = web};
    pr_grant grant;
    uint16_t number;
    OK(api->reserve(txn, 0, &want, 1, &grant, &number, 1, &need));
    OK(api->commit(txn, &no));
    OK(api->pump(ctx, 1, &next));
    const int used = threads();
    OK(api->destroy(ctx));
    printf("%lld %d %d %d\n", (long long)(ended.tv_sec - begun.tv_sec) * 1000000000 + ended.tv_nsec - begun.tv_nsec, before, loaded, used);
    CHECK_EQ(used, before);
    return 0;
}
