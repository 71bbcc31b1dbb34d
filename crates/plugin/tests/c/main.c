/* cases SO [-l | -s] [NAME...]: runs the tests of these names, or all. -l: only lists them. -s: a slow tool watches, so
 * fewer rounds. */
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>
#include "test.h"

const pr_api *api;
int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *);
static int failures, slow;
static _Thread_local char now[256];

void trying(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(now, sizeof now, format, args);
    va_end(args);
}

void failed(const char *file, int line, const char *format, ...) {
    const int most = 50;
    if (__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED) > most) return;
    va_list args;
    va_start(args, format);
    char said[512];
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: %s [%s]\n", file, line, said, now);
}

void equal(const char *file, int line, const char *what, int64_t got, int64_t want) {
    if (got != want) failed(file, line, "%s is %lld, not %lld; %s", what, (long long)got, (long long)want, words());
}

uint32_t rounds(uint32_t full) {
    return slow ? (full + 19) / 20 : full;
}

const char *words(void) {
    static _Thread_local char said[512];
    uint32_t need;
    if (api == NULL || api->last_error(said, sizeof said, &need) != PR_OK) return "no words";
    return said;
}

/* A fault says what was tried; a sanitizer says more than that and is left its own handler. */
static void fault(int number) {
    static const char begin[] = "a fault while trying: ";
    if (write(2, begin, sizeof begin - 1) < 0 || write(2, now, strlen(now)) < 0 || write(2, "\n", 1) < 0) _exit(3);
    signal(number, SIG_DFL);
    raise(number);
}

static int load(const char *so) {
#ifdef LINKED
    (void)so;
    get_api = pr_get_api;
#else
    void *loaded = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (loaded == NULL) return fprintf(stderr, "%s\n", dlerror()), -1;
    *(void **)&get_api = dlsym(loaded, "pr_get_api");
    if (get_api == NULL) return fprintf(stderr, "%s\n", dlerror()), -1;
#endif
    pr_hostinfo host = {sizeof host, PR_ABI, PR_CAP_ENDPOINTS};
    return get_api(&host, &api, NULL);
}

int main(int argc, char **argv) {
    static const struct test *const lists[] = {handshake_tests, matrix_tests, sizes_tests, ids_tests, ports_tests, hosts_tests,
                                        texts_tests, threads_tests, fork_tests, random_tests, descriptors_tests, watching_tests, machines_tests, bounds_tests, loaded_tests, ledger_tests};
    if (argc < 2 || load(argv[1]) != PR_OK) return fprintf(stderr, "cases SO [-l | -s] [NAME...]\n"), 2;
    int from = 2;
    const int list_only = argc > from && strcmp(argv[from], "-l") == 0;
    if (argc > from && strcmp(argv[from], "-s") == 0) slow = 1, from++;
#ifndef SANITIZED
    signal(SIGSEGV, fault);
    signal(SIGBUS, fault);
    signal(SIGABRT, fault);
#else
    (void)fault;
#endif
    int ran = 0;
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++) {
        for (const struct test *it = lists[list]; it->name != NULL; it++) {
            if (list_only) {
                printf("%s\n", it->name);
                continue;
            }
            int wanted = argc == from;
            for (int a = from; a < argc; a++) wanted |= strcmp(argv[a], it->name) == 0;
            if (!wanted) continue;
            int before = failures;
            trying("%s", it->name);
            it->run();
            printf("%s %s\n", failures == before ? "ok" : "FAILED", it->name);
            fflush(stdout);
            ran++;
        }
    }
    if (list_only) return 0;
    if (ran == 0 || (argc > from && ran != argc - from)) return fprintf(stderr, "no such test\n"), 2;
    return failures == 0 ? 0 : 1;
}
