/* Opens and closes the plugin as a scheduler does that looks at each candidate, and counts what stays.
 *   peek PLUGIN.so open|call */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "portreeve.h"

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static long entries(const char *folder) {
    DIR *dir = opendir(folder);
    if (dir == NULL) fail(folder);
    long n = 0;
    while (readdir(dir) != NULL) n++;
    closedir(dir);
    return n;
}

/* Lines of the map; neighbours that the kernel joined or cut are the heap's, not ours, so only files count. */
static long mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    if (maps == NULL) fail("maps");
    char line[4096];
    long n = 0;
    while (fgets(line, sizeof line, maps) != NULL) n += strchr(line, '/') != NULL;
    fclose(maps);
    return n;
}

/* Everything a caller may do with a table, and the end of it. */
static void call(void *so) {
    int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *);
    *(void **)&get_api = dlsym(so, "pr_get_api");
    if (get_api == NULL) fail("no pr_get_api");
    pr_hostinfo host = {sizeof host, PR_ABI, PR_CAP_ENDPOINTS};
    const pr_api *api;
    if (get_api(&host, &api, NULL) != PR_OK) fail("pr_get_api");
    pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = 4, .max_allocs = 16};
    pr_ctx ctx;
    pr_txn txn;
    uint64_t number;
    if (api->create(&config, &ctx) != PR_OK) fail("create");
    if (api->txn_begin(ctx, 0, 1, &txn) != PR_OK) fail("txn_begin");
    if (api->commit(txn, &number) != PR_OK) fail("commit");
    if (api->pump(ctx, 2, &number) != PR_OK) fail("pump");
    if (api->destroy(ctx) != PR_OK) fail("destroy");
}

int main(int argc, char **argv) {
    if (argc != 3) fail("peek PLUGIN.so open|call");
    int calls = strcmp(argv[2], "call") == 0;
    long fds = 0, threads = 0, maps = 0;
    for (int round = 0; round < 1000; round++) {
        void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (so == NULL) fail(dlerror());
        if (calls) call(so);
        if (dlclose(so) != 0) fail(dlerror());
        /* What the first load brought stays: -z nodelete. */
        if (round == 0) {
            fds = entries("/proc/self/fd");
            threads = entries("/proc/self/task");
            maps = mappings();
        }
    }
    if (entries("/proc/self/task") != threads || threads != 3) fail("a thread was started"); /* . and .. and ours */
    if (entries("/proc/self/fd") != fds) fail("a descriptor was left");
    if (mappings() != maps) fail("a mapping was left");
    return 0;
}
