/* What the tests of the table share: the table, checks that say where they failed, memory that ends at a page nobody
 * may touch, and a small world to call into. */
#ifndef TEST_H
#define TEST_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "portreeve.h"

extern const pr_api *api;
/* The one symbol. */
extern int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *);

/* A test by name; `run` checks with CHECK and EQ. */
struct test {
    const char *name;
    void (*run)(void);
};

/* One list per file, ended by a NULL. */
extern const struct test handshake_tests[], matrix_tests[], sizes_tests[], ids_tests[], ports_tests[], hosts_tests[], texts_tests[],
    threads_tests[], fork_tests[], random_tests[], descriptors_tests[], watching_tests[], machines_tests[], bounds_tests[], loaded_tests[], ledger_tests[];

/* What is tried now: a failed check prints it, and so does a fault. */
void trying(const char *format, ...) __attribute__((format(printf, 1, 2)));
void failed(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Both go on after a failure, so that one run shows all of them; `main` ends with 1 then. */
#define CHECK(truth) ((truth) ? (void)0 : failed(__FILE__, __LINE__, "%s", #truth))
#define EQ(got, want) equal(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
void equal(const char *file, int line, const char *what, int64_t got, int64_t want);

/* Rounds of what is repeated: `full`, or a part of it where a slow tool watches (see main.c). */
uint32_t rounds(uint32_t full);

static inline pr_str text(const char *s) {
    pr_str t = {s, strlen(s)};
    return t;
}

/* `n` bytes that end where the next page faults, in the region `slot` (0 to 15), filled with 0xa5. They hold until the
 * next call with the slot. n may be up to 64 KiB, and a multiple of the alignment that is needed. */
void *guarded(unsigned slot, size_t n);
/* The same with a copy of what is at `from`. */
void *guarded_copy(unsigned slot, const void *from, size_t n);

/* Numbers that look random and are the same in each run. */
struct dice {
    uint64_t state;
};
uint64_t roll(struct dice *);
uint32_t below(struct dice *, uint32_t end);

/* A context with two hosts, n0 at 0 and n1 at 1, a profile `web` of one port `http` for service web.alice, and one held
 * grant of it on n0: job 1. Its maxima are small. */
enum phase { RESTORING, IDLE, IN_TXN, IN_WHAT_IF };
struct world {
    pr_ctx ctx;
    pr_txn txn;    /* 0 in RESTORING and IDLE */
    pr_alloc held; /* 0 in RESTORING */
    pr_snap snap;  /* as are these two */
    pr_watch watch;
    pr_sup sup;
    int fd;
    uint32_t profile, mark;
    uint16_t number; /* of `held` */
};
enum { MOST = 64, MOST_WATCHES = 4 };
pr_config small_config(uint32_t flags);
pr_ctx make(const pr_config *config);
void put_hosts(pr_ctx ctx, uint32_t n);
uint32_t put_profile(pr_ctx ctx, const char *service, const pr_port *ports, uint32_t n);
struct world make_world(enum phase phase);
void end_world(struct world *world);
pr_stats stats_of(pr_ctx ctx);
/* Whether two looks at a context differ in anything but how many calls were refused. */
int same_state(const pr_stats *a, const pr_stats *b);
/* A grant of one replica, committed; its numbers into `ports`, of which there are `cap`. */
pr_grant hold(pr_ctx ctx, const pr_want *want, uint16_t *ports, uint32_t cap);
/* The last failure of this thread. */
const char *words(void);
extern const char *const sup_profile;
#endif
