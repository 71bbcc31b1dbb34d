/* What class H costs beside time: blocks of memory taken and system calls made, per function, over many cycles. Both shall be 0 once warm.
 *
 *   counters PLUGIN CYCLES
 *
 * A third of the cycles is followed by a pump two times of three, a third always, a third never.
 *
 * System calls are caught by a seccomp filter that lets only one place in this program make them: whatever else asks gets SIGSYS, is
 * counted if it came out of a watched call, and is then done from that place. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include "host.h"
#include "heap.h"

/* System calls --------------------------------------------------------------------------------------------------------------------- */

long one_place(long number, const long arguments[6]);
extern const char one_place_calls[];
__asm__(".text\n.globl one_place, one_place_calls\none_place:\n"
        "mov %rdi, %rax\nmov %rsi, %r11\n"
        "mov 0(%r11), %rdi\nmov 16(%r11), %rdx\nmov 24(%r11), %r10\nmov 32(%r11), %r8\nmov 40(%r11), %r9\nmov 8(%r11), %rsi\n"
        "syscall\none_place_calls:\nret\n");

static volatile uint64_t calls_made;
static volatile int last_call = -1;
static volatile sig_atomic_t watched;

static void caught(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const long arguments[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX], registers[REG_R10], registers[REG_R8], registers[REG_R9]};
    if (watched) {
        calls_made++;
        last_call = info->si_syscall;
    }
    registers[REG_RAX] = one_place(info->si_syscall, arguments);
}

/* From here on no system call of this thread goes unseen. */
static bool watch_system_calls(void) {
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL) != 0) return false;
    const uint64_t place = (uint64_t)(uintptr_t)one_place_calls;
    const uint32_t low = (uint32_t)place, high = (uint32_t)(place >> 32);
    const uint32_t at = offsetof(struct seccomp_data, instruction_pointer);
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 5, 0), /* the way out of the handler */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Counters ------------------------------------------------------------------------------------------------------------------------- */

enum {
    BEGIN, FEASIBLE, FEASIBLE_MAX, EXPLAIN, EXPLAIN_ALL, RESERVE, RESERVE_REFUSED, RESERVE_KNOWN, RESERVE_ALL, RESERVE_SAME, RESERVE_PREFER,
    RESERVE_MANY, MARK, ROLLBACK, COMMIT, ABORT, HOLDERS, RELEASE_BEGIN, RELEASE_CONFIRM, RELEASE_JOB, FIND, GET, ENV, TRY_BEGIN, TRY_GIVE,
    TRY_FEASIBLE, TRY_EXPLAIN, TRY_RESERVE, TRY_ROLLBACK, TRY_ABORT, STALE, FUNCTIONS
};
static const char *const names[FUNCTIONS] = {
    "txn_begin", "feasible", "feasible, max_replicas", "explain", "explain_all", "reserve", "reserve, refused", "reserve, known", "reserve, ALL",
    "reserve, SAME", "reserve, PREFER", "reserve, as many as may be", "mark", "rollback", "commit", "abort_", "holders", "release_begin", "release_confirm", "release_job",
    "grant_find", "grant_get", "env", "what-if: txn_begin", "what-if: give", "what-if: feasible", "what-if: explain", "what-if: reserve", "what-if: rollback",
    "what-if: abort_", "stale and malformed"};
static struct count {
    uint64_t times, blocks, calls;
    int number;
} counts[FUNCTIONS];

/* Does one watched call and books what it took. */
#define H(function, call, shall)                                 \
    do {                                                         \
        const uint64_t blocks_ = heap_taken, calls_ = calls_made; \
        watched = 1;                                             \
        const int64_t code_ = (call);                            \
        watched = 0;                                             \
        counts[function].times++;                                \
        counts[function].blocks += heap_taken - blocks_;         \
        if (calls_made != calls_) {                              \
            counts[function].calls += calls_made - calls_;       \
            counts[function].number = last_call;                 \
        }                                                        \
        CHECK_EQ(code_, shall);                                  \
    } while (0)

/* The cluster ---------------------------------------------------------------------------------------------------------------------- */

enum { HOSTS = 16, WORDS = 1, GANG = 4, MANY = 256 };
static pr_ctx ctx;
static uint32_t service, fixed, block, absent, inside, mixed;
static uint64_t now;

static uint32_t profile(const char *name, const char *of, const pr_port *ports, uint32_t n) {
    const pr_profile made = {.size = sizeof made, .name = str(name), .service = str(of), .ports = ports, .n_ports = n, .port_size = sizeof ports[0]};
    uint32_t id;
    OK(api->profile_put(ctx, &made, &id));
    return id;
}

static void begin(void) {
    const pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = HOSTS, .max_allocs = 4096, .max_ports = 4096, .cool_ms = 1000};
    OK(api->create(&config, &ctx));
    const pr_network fabric = {.size = sizeof fabric, .name = str("fabric"), .ip = {0xfd}, .family = 6, .prefix = 8};
    OK(api->network_put(ctx, &fabric, 1));
    for (uint32_t h = 0; h < HOSTS; h++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", h);
        const pr_range dynamic = {20000, 20063};
        const pr_host host = {.size = sizeof host, .host = h, .name = str(name), .dynamic = &dynamic, .n_dynamic = 1};
        OK(api->host_put(ctx, &host, 1));
        const pr_addr addresses[] = {{.ip = {10, 0, 0, (uint8_t)h}, .family = 4}, {.ip = {0xfd, [15] = (uint8_t)h}, .family = 6}};
        OK(api->report_addr(ctx, h, 1, addresses, h % 4 == 3 ? 1 : 2)); /* one of four is not in the fabric */
    }
    const pr_port any[] = {{.name = str("http"), .proto = PR_TCP}, {.name = str("rpc"), .proto = PR_TCP}, {.name = str("dns"), .proto = PR_TCP_UDP}};
    const pr_port one[] = {{.name = str("admin"), .proto = PR_TCP, .fixed = 9100}, {.name = str("http"), .proto = PR_TCP}};
    const pr_port four[] = {{.name = str("rpc"), .proto = PR_TCP, .count = 4}};
    const pr_port none[] = {{.name = str("odd"), .proto = PR_TCP, .fixed = 80}};
    service = profile("any", "web.alice", any, 3);
    fixed = profile("fixed", "admin.alice", one, 2);
    block = profile("block", "rpc.bob", four, 1);
    absent = profile("absent", "odd.bob", none, 1);
    const pr_range upper = {20032, 20063};
    const pr_port there[] = {{.name = str("data"), .env = str("DATA_PORT"), .network = str("fabric"), .proto = PR_TCP},
                             {.name = str("http"), .env = str("HTTP"), .within = &upper, .n_within = 1, .proto = PR_TCP}};
    const pr_port both[] = {{.name = str("dns"), .proto = PR_TCP_UDP}, {.name = str("log"), .proto = PR_UDP}, {.name = str("rpc"), .proto = PR_TCP, .count = 2}};
    inside = profile("inside", "data.carol", there, 2);
    mixed = profile("mixed", "dns.carol", both, 3);
}

static pr_want want(uint64_t job, uint32_t replica, uint32_t of, uint32_t host) {
    const pr_want made = {.job = job, .replica = replica, .profile = of, .host = host};
    return made;
}

/* The newest number that any of these services was published under. */
static uint64_t published(void) {
    static const char *const services[] = {"web.alice", "admin.alice", "rpc.bob", "data.carol"};
    const pr_str all = {NULL, 0};
    uint64_t newest = 0;
    for (int s = 0; s < 4; s++) {
        pr_endpoint endpoints[256];
        uint64_t revision = 0;
        uint32_t need;
        OK(api->resolve(ctx, str(services[s]), all, PR_RESOLVE_ALL, endpoints, 256, &need, &revision));
        newest = revision > newest ? revision : newest;
    }
    return newest;
}

enum pumps { SOMETIMES, ALWAYS, NEVER };

/* One cycle of a scheduler, with each call of class H in it; `round` decides where. */
static void cycle(uint64_t round, enum pumps pumps) {
    const uint32_t host = (uint32_t)(round % HOSTS);
    const uint64_t job = 10 * round;
    uint64_t fits[WORDS], no, next;
    uint16_t most[64 * WORDS], ports[64], numbers[3 * MANY];
    uint32_t need, reasons[16], mark, cursor = 0, n, done;
    pr_why why[32];
    pr_held held[64];
    static pr_grant many[MANY];
    static pr_want wants[MANY];
    pr_grant grants[GANG], former;
    pr_alloc found;
    pr_rec record;
    char env[1024];
    pr_txn txn;
    int32_t rcs[8];
    const pr_need any = {.profile = service}, admin = {.profile = fixed, .replicas = 1}, odd = {.profile = absent}, later = {.profile = fixed, .at_ms = now + 5000};
    const pr_need fabric = {.profile = inside}, pair = {.profile = mixed, .replicas = 2};

    /* Somebody waits for a number that it fixes: "any" leaves it alone. */
    const pr_want waiting = want(job + 5, 0, fixed, host);
    OK(api->wait_put(ctx, &waiting, 1, rcs));
    H(BEGIN, api->txn_begin(ctx, 0, now, &txn), PR_OK);
    H(FEASIBLE, api->feasible(txn, &any, NULL, fits, NULL, WORDS), HOSTS);
    H(FEASIBLE_MAX, api->feasible(txn, &any, fits, fits, most, WORDS), HOSTS);
    H(FEASIBLE, api->feasible(txn, &later, NULL, fits, NULL, WORDS) >= 0, 1);
    H(EXPLAIN, api->explain(txn, &any, host, why, 32, &need), PR_OK);
    H(EXPLAIN, api->explain(txn, &odd, host, why, 32, &need), PR_OK);
    CHECK_EQ(why[0].reason, PR_R_NOT_IN_POOL);
    H(EXPLAIN, api->explain(txn, &odd, host, why, 0, &need), PR_ENOSPC);
    H(EXPLAIN, api->explain(txn, &fabric, HOSTS - 1, why, 32, &need), PR_OK);
    CHECK_EQ(why[0].reason, PR_R_NO_ADDRESS);
    H(FEASIBLE, api->feasible(txn, &pair, NULL, fits, NULL, WORDS), HOSTS);
    H(FEASIBLE_MAX, api->feasible(txn, &pair, NULL, fits, most, WORDS), HOSTS);
    H(FEASIBLE_MAX, api->feasible(txn, &fabric, NULL, fits, most, WORDS), HOSTS - HOSTS / 4);
    H(EXPLAIN_ALL, api->explain_all(txn, &fabric, NULL, WORDS, reasons, 16), PR_OK);
    H(EXPLAIN_ALL, api->explain_all(txn, &odd, NULL, WORDS, reasons, 16), PR_OK);
    CHECK_EQ(reasons[PR_R_NOT_IN_POOL], HOSTS);

    /* A fixed number that somebody has. */
    pr_want first = want(job, 0, fixed, host), second = want(job, 1, fixed, host);
    H(RESERVE, api->reserve(txn, 0, &first, 1, grants, ports, 64, &need), PR_OK);
    H(EXPLAIN, api->explain(txn, &admin, host, why, 32, &need), PR_OK);
    CHECK_EQ(why[0].reason, PR_R_HELD);
    H(EXPLAIN_ALL, api->explain_all(txn, &admin, NULL, WORDS, reasons, 16), PR_OK);
    H(RESERVE_REFUSED, api->reserve(txn, 0, &second, 1, grants, ports, 64, &need), PR_ENOPORT);
    H(RESERVE_KNOWN, api->reserve(txn, 0, &first, 1, grants, ports, 64, &need), PR_EEXIST);
    H(RELEASE_BEGIN, api->release_begin(ctx, &grants[0].id, 1, 0, rcs), PR_ESTATE);

    /* Tried and taken back. */
    H(MARK, api->mark(txn, &mark), PR_OK);
    pr_want gang[GANG];
    for (uint32_t i = 0; i < GANG; i++) gang[i] = want(job + 1, i, block, (host + i) % HOSTS);
    H(RESERVE_SAME, api->reserve(txn, PR_RESERVE_ALL | PR_RESERVE_SAME, gang, GANG, grants, ports, 64, &need), PR_OK);
    H(ROLLBACK, api->rollback(txn, mark), PR_OK);
    H(RESERVE_ALL, api->reserve(txn, PR_RESERVE_ALL, gang, GANG, grants, ports, 64, &need), PR_OK);
    gang[0] = want(job + 2, 0, absent, host);
    H(RESERVE_REFUSED, api->reserve(txn, PR_RESERVE_ALL, gang, GANG, grants, ports, 64, &need), PR_ENOPORT);

    /* One whose earlier incarnation left its numbers cooling. */
    pr_want again = want(7, host, service, host);
    again.incarnation = (uint32_t)(round / HOSTS + 1);
    again.flags = PR_WANT_PREFER;
    H(RESERVE_PREFER, api->reserve(txn, 0, &again, 1, &former, ports, 64, &need), PR_OK);
    pr_want there = want(job + 4, 0, inside, host % 4 == 3 ? host - 1 : host);
    H(RESERVE, api->reserve(txn, 0, &there, 1, grants, ports, 64, &need), PR_OK);
    do H(HOLDERS, api->holders(txn, host, &cursor, held, 7, &n), PR_OK);
    while (n != 0);

    /* As many as there is room for at once, then one too many, and back. */
    H(MARK, api->mark(txn, &mark), PR_OK);
    if (round % 16 == 0) {
        for (uint32_t i = 0; i < MANY; i++) wants[i] = want(job + 6, i, service, i % HOSTS);
        H(RESERVE_MANY, api->reserve(txn, PR_RESERVE_ALL, wants, MANY, many, numbers, 3 * MANY, &need) <= 0, 1);
        H(RESERVE_MANY, api->reserve(txn, 0, wants, MANY, many, numbers, 3 * MANY, &need) <= 0, 1);
        H(FEASIBLE_MAX, api->feasible(txn, &any, NULL, fits, most, WORDS) >= 0, 1);
        H(EXPLAIN_ALL, api->explain_all(txn, &any, NULL, WORDS, reasons, 16), PR_OK);
        H(ROLLBACK, api->rollback(txn, mark), PR_OK);
    }
    pr_want alike[2] = {want(job + 7, 0, block, host), want(job + 7, 1, block, host)};
    H(RESERVE_SAME, api->reserve(txn, PR_RESERVE_ALL | PR_RESERVE_SAME, alike, 2, grants, ports, 64, &need) < 0, 1);
    H(RESERVE, api->reserve(txn, 0, &alike[0], 1, grants, ports, 3, &need), PR_ENOSPC);
    gang[0] = want(job + 1, 0, block, host);
    H(RESERVE_KNOWN, api->reserve(txn, PR_RESERVE_ALL, gang, GANG, grants, ports, 64, &need), PR_OK);
    H(STALE, api->feasible(txn + 1, &any, NULL, fits, NULL, WORDS), PR_ESTALE);
    H(STALE, api->feasible(txn, NULL, NULL, fits, NULL, WORDS), PR_EINVAL);
    H(STALE, api->reserve(txn, 64, gang, GANG, grants, ports, 64, &need), PR_EINVAL);
    H(STALE, api->txn_begin(ctx, 0, now, &txn), PR_EBUSY);
    if (round % 5 == 4) {
        H(ABORT, api->abort_(txn), PR_OK);
    } else {
        H(COMMIT, api->commit(txn, &no), PR_OK);
        H(FIND, api->grant_find(ctx, &first, &found), PR_OK);
        H(GET, api->grant_get(ctx, found, &record, ports, 64, &need), PR_OK);
        H(GET, api->grant_get(ctx, found, &record, ports, 1, &need), PR_ENOSPC);
        H(ENV, api->env(ctx, found, 0, env, sizeof env, &need), PR_OK);
        H(ENV, api->env(ctx, found, 0, NULL, 0, &need), PR_ENOSPC);
        there.incarnation = PR_ANY;
        pr_alloc inner;
        H(FIND, api->grant_find(ctx, &there, &inner), PR_OK);
        H(ENV, api->env(ctx, inner, 0, env, sizeof env, &need), PR_OK);

        /* Who could start if this one ended. */
        H(TRY_BEGIN, api->txn_begin(ctx, PR_TXN_WHATIF, now, &txn), PR_OK);
        H(MARK, api->mark(txn, &mark), PR_OK);
        H(TRY_GIVE, api->give(txn, &found, 1, rcs), PR_OK);
        H(TRY_FEASIBLE, api->feasible(txn, &later, NULL, fits, NULL, WORDS) >= 0, 1);
        H(TRY_EXPLAIN, api->explain_all(txn, &admin, NULL, WORDS, reasons, 16), PR_OK);
        cursor = 0;
        do H(HOLDERS, api->holders(txn, host, &cursor, held, 64, &n), PR_OK);
        while (n != 0);
        for (uint32_t i = 0; i < GANG; i++) gang[i] = want(job + 8, i, block, (host + i) % HOSTS);
        H(TRY_RESERVE, api->reserve(txn, PR_RESERVE_ALL | PR_RESERVE_SAME, gang, GANG, grants, ports, 64, &need), PR_OK);
        for (uint32_t i = 0; i < GANG; i++) gang[i].job = job + 9;
        H(TRY_RESERVE, api->reserve(txn, PR_RESERVE_ALL, gang, GANG, grants, ports, 64, &need), PR_OK);
        second = want(job + 3, 0, service, (host + 1) % HOSTS);
        H(TRY_RESERVE, api->reserve(txn, 0, &second, 1, grants, ports, 64, &need), PR_OK);
        H(TRY_EXPLAIN, api->explain(txn, &admin, host, why, 32, &need), PR_OK);
        H(TRY_ROLLBACK, api->rollback(txn, mark), PR_OK);
        H(TRY_ABORT, api->abort_(txn), PR_OK);

        H(RELEASE_BEGIN, api->release_begin(ctx, &found, 1, 0, rcs), PR_OK);
        H(RELEASE_CONFIRM, api->release_confirm(ctx, &found, 1, round % 2 ? PR_REL_NO_COOL : 0, now, rcs), PR_OK);
        H(RELEASE_CONFIRM, api->release_confirm(ctx, &found, 1, 0, now, rcs), PR_ESTALE);
        H(RELEASE_JOB, api->release_job(ctx, job + 1, PR_ANY, 0, now, &done), PR_OK);
        H(RELEASE_JOB, api->release_job(ctx, job + 1, PR_ANY, 1, now, &done), PR_OK);
        CHECK_EQ(done, GANG);
        H(RELEASE_CONFIRM, api->release_confirm(ctx, &former.id, 1, 0, now, rcs), PR_OK);
        H(RELEASE_JOB, api->release_job(ctx, job + 4, 0, 1, now, &done), PR_OK);
        CHECK_EQ(done, 1);
        H(FIND, api->grant_find(ctx, &first, &found), PR_ENOENT);
    }
    OK(api->wait_drop(ctx, &waiting, 1, rcs));
    now += 100;
    if (pumps == ALWAYS || (pumps == SOMETIMES && round % 3 != 0)) {
        const uint64_t before = published();
        OK(api->pump(ctx, now, &next));
        CHECK(published() - before <= 4); /* one snapshot per touched service at most */
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const uint64_t cycles = strtoull(argv[2], NULL, 10);
    load_plugin(argv[1]);
    begin();
    uint64_t round = 0;
    /* Once around all hosts with each rest of the round: then each free set has had its greatest number of runs. */
    for (; round < 60 * HOSTS; round++) cycle(round, (enum pumps)(round / 16 % 3));
    memset(counts, 0, sizeof counts);
    const bool caught_all = watch_system_calls();
    if (caught_all) { /* that one is seen */
        watched = 1;
        const pid_t parent = getppid();
        watched = 0;
        CHECK(parent > 0);
        CHECK_EQ(calls_made, 1);
    }
    for (uint64_t begun = round; round < begun + cycles; round++) cycle(round, (enum pumps)(3 * (round - begun) / cycles));
    uint64_t blocks = 0, calls = 0;
    for (int f = 0; f < FUNCTIONS; f++) {
        blocks += counts[f].blocks;
        calls += counts[f].calls;
        printf("%-26s %9llu times, %llu blocks", names[f], (unsigned long long)counts[f].times, (unsigned long long)counts[f].blocks);
        if (caught_all) printf(", %llu system calls", (unsigned long long)counts[f].calls);
        if (counts[f].calls != 0) printf(" (the last was %d)", counts[f].number);
        printf("\n");
    }
    printf("in %llu cycles: %llu blocks", (unsigned long long)cycles, (unsigned long long)blocks);
    printf(caught_all ? ", %llu system calls\n" : "; system calls not counted: no filter may be set here\n", (unsigned long long)calls);
    fflush(stdout);
    return blocks == 0 && calls == 0 ? 0 : 1;
}
