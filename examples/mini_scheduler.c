/* A scheduler in one file, over dlopen: hosts, kinds of jobs and jobs from three files, a job log of its own, one cycle per tick.
 *
 *   cc -std=c11 -Wall -Wextra -Iinclude examples/mini_scheduler.c -ldl -o mini_scheduler
 *   ./mini_scheduler libportreeve_plugin.so hosts kinds jobs log run/ [--real] [--until MS] [--kill-at POINT[:N]]
 *
 *   hosts:  NAME CPUS ADDRESS                    n1 4 10.0.0.1
 *   kinds:  NAME SERVICE PORT...                 web web.alice http=any rpc=any*4 admin=8080 dns=5353/udp
 *   jobs:   ID AT_MS KIND REPLICAS CPUS PRIORITY RUNTIME_MS       1 0 web 2 1 5 60000     priorities are 0 to 9
 *   log:    what was decided, a line each, synced before it is true; read again at the start. `run/` stands for the nodes: a file per started replica.
 *
 * What a reader should take from it:
 *   - a cycle: txn_begin, feasible, the scheduler's own filter (cpus), reserve, log and sync, commit, launch, pump;
 *   - the job log is the truth. The plugin stores nothing: at the start the log is restored into it, whatever the moment of the crash;
 *   - preemption: a what-if shows whom to end; then release_begin, release_confirm, and a later cycle reserves;
 *   - what agents report goes in by R calls, and clients' endpoints come out of resolve and a watch in the scheduler's own poll loop.
 *
 * --kill-at reserve|torn|log|commit|launch[:N] kills the process there, the Nth time (1), without a word: what a crash does. The clock is virtual, a second per
 * tick and as fast as it goes, unless --real. Everything is single-threaded and of fixed size, to be short. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "portreeve.h"

enum { HOSTS = 64, KINDS = 16, JOBS = 256, REPLICAS = 16, NUMBERS = 64, PORTS = 8, PRIORITIES = 10, TICK_MS = 1000, COOL_MS = 60000 };
enum state { PENDING, RUNNING, STOPPING, DONE };

struct host { char name[64], address[64]; uint32_t cpus, used; };
struct kind { char name[32], service[64]; uint32_t id, numbers; };
struct replica { uint32_t host; pr_alloc id; uint16_t numbers[NUMBERS]; };
struct job {
    uint64_t id, at, runtime, started, behind; /* behind: the job that this one was stopped for */
    uint32_t kind, replicas, cpus, priority, incarnation, n_numbers;
    enum state state;
    struct replica replica[REPLICAS];
};
/* A job that has ended: its numbers still rest for a while. */
struct rest { struct job job; uint64_t ended; };

static const pr_api *api;
static pr_ctx ctx;
static struct host hosts[HOSTS + 1]; /* The last one stands for hosts of the log that are no more. */
static struct kind kinds[KINDS];
static struct job jobs[JOBS];
static struct rest rests[JOBS];
static uint32_t n_hosts, n_kinds, n_jobs, n_rests;
static uint64_t now;
static int log_fd, is_real;
static const char *run_dir, *kill_at = "";
static long kill_in = 1;

static pr_str text(const char *s) { pr_str t = {s, strlen(s)}; return t; }

static _Noreturn void die(const char *what, const char *words) {
    fprintf(stderr, "%s: %s\n", what, words);
    exit(1);
}

/* Every call answers a code; last_error has the words. */
static int64_t must(int64_t code, const char *call) {
    char words[512] = "no words";
    uint32_t need;
    if (code >= 0) return code;
    api->last_error(words, sizeof words, &need);
    die(call, words);
}

static void say(const char *form, ...) {
    va_list rest;
    va_start(rest, form);
    printf("%8llu ms  ", (unsigned long long)now);
    vprintf(form, rest);
    printf("\n");
    fflush(stdout);
    va_end(rest);
}

/* The crash. */
static void point(const char *name) {
    if (strcmp(name, kill_at) == 0 && --kill_in == 0) raise(SIGKILL);
}

/* The job log -------------------------------------------------------------------------------------------------------------------- */

static uint32_t sum_of(const char *line, size_t n) { /* FNV-1a: tells a torn line from a whole one. */
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < n; i++) sum = (sum ^ (unsigned char)line[i]) * 16777619u;
    return sum;
}

/* Appends "TIME line #SUM". It is promised to nobody before sync_log. */
static void write_log(const char *form, ...) {
    char line[8192];
    va_list rest;
    int n = snprintf(line, sizeof line, "%llu ", (unsigned long long)now);
    va_start(rest, form);
    n += vsnprintf(line + n, sizeof line - (size_t)n, form, rest);
    va_end(rest);
    n += snprintf(line + n, sizeof line - (size_t)n, " #%08x\n", sum_of(line, (size_t)n));
    if (n >= (int)sizeof line) die("log", "a line is too long");
    if (strcmp(kill_at, "torn") == 0 && kill_in == 1 && strstr(line, " start ") != NULL) n /= 2; /* A crash in the middle of a write. */
    errno = ENOSPC; /* What a write that is only too short means. */
    if (write(log_fd, line, (size_t)n) != n) die("log", strerror(errno));
}

static void sync_log(void) {
    if (fsync(log_fd) != 0) die("log", strerror(errno)); /* A real one calls abort_ here and goes on. */
}

/* One line per job with everything that was decided about it, so that it is there whole or not at all. */
static void log_start(const struct job *job) {
    char all[4096] = "";
    size_t n = 0;
    for (uint32_t r = 0; r < job->replicas; r++) {
        const struct replica *at = &job->replica[r];
        n += (size_t)snprintf(all + n, sizeof all - n, " %s:", hosts[at->host].name);
        for (uint32_t i = 0; i < kinds[job->kind].numbers; i++) n += (size_t)snprintf(all + n, sizeof all - n, "%s%u", i ? "," : "", at->numbers[i]);
        if (n >= sizeof all) die("log", "a job is too long");
    }
    write_log("start %llu %u%s", (unsigned long long)job->id, job->incarnation, all);
}

static struct job *job_of(uint64_t id) {
    for (uint32_t j = 0; j < n_jobs; j++)
        if (jobs[j].id == id) return &jobs[j];
    die("log", "it names a job that the file of jobs does not have");
}

static uint32_t host_of(const char *name) {
    for (uint32_t h = 0; h < n_hosts; h++)
        if (strcmp(hosts[h].name, name) == 0) return h;
    return HOSTS;
}

static void use_cpus(const struct job *job, int sign) {
    for (uint32_t r = 0; r < job->replicas; r++) hosts[job->replica[r].host].used += (uint32_t)sign * job->cpus;
}

/* The job is no more: its numbers rest from here on. */
static void ended(struct job *job) {
    if (n_rests == JOBS) memmove(rests, rests + 1, sizeof *rests * --n_rests);
    rests[n_rests].job = *job;
    rests[n_rests++].ended = now;
    use_cpus(job, -1);
    /* Who was stopped before its time waits again, as another placement of the same job. */
    if (job->state == STOPPING) job->incarnation++, job->state = PENDING;
    else job->state = DONE;
}

static char *next_word(char **rest) {
    char *word = strtok_r(NULL, " ", rest);
    if (word == NULL) die("log", "a line has too few words");
    return word;
}

static void replay_line(char *line) {
    char *save = line;
    now = strtoull(next_word(&save), NULL, 10);
    const char *what = next_word(&save);
    struct job *job = job_of(strtoull(next_word(&save), NULL, 10));
    if (strcmp(what, "end") == 0) { ended(job); return; }
    if (strcmp(what, "stop") == 0) {
        job->state = STOPPING;
        job->behind = strtoull(next_word(&save), NULL, 10);
        return;
    }
    job->incarnation = (uint32_t)strtoul(next_word(&save), NULL, 10);
    job->state = RUNNING;
    job->started = now;
    char *numbers;
    for (job->replicas = 0; job->replicas < REPLICAS && (numbers = strtok_r(NULL, " ", &save)) != NULL; job->replicas++) {
        struct replica *at = &job->replica[job->replicas];
        const char *name = strsep(&numbers, ":");
        at->host = host_of(name);
        for (job->n_numbers = 0; numbers != NULL && job->n_numbers < NUMBERS;) at->numbers[job->n_numbers++] = (uint16_t)strtoul(strsep(&numbers, ","), NULL, 10);
    }
    use_cpus(job, 1);
}

/* Reads what was decided. The last line may be torn: it was promised to nobody, and is cut off. One further up is damage. */
static void replay(const char *path) {
    log_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FILE *file = log_fd < 0 ? NULL : fdopen(dup(log_fd), "r");
    if (file == NULL) die(path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    off_t good = 0;
    for (ssize_t n; (n = getline(&line, &room, file)) > 0; good += n) {
        char *mark = strrchr(line, '#');
        if (line[n - 1] != '\n' || mark == NULL || mark == line || strtoul(mark + 1, NULL, 16) != sum_of(line, (size_t)(mark - 1 - line))) {
            if (getline(&line, &room, file) > 0) die(path, "a line in the middle is damaged");
            say("the last line of the log is torn and cut off");
            if (ftruncate(log_fd, good) != 0) die(path, strerror(errno));
            break;
        }
        mark[-1] = 0;
        replay_line(line);
    }
    free(line);
    fclose(file);
}

/* The three files ---------------------------------------------------------------------------------------------------------------- */

/* Calls `take` with each line that is not empty and no comment. */
static void each_line(const char *path, void (*take)(char *)) {
    FILE *file = fopen(path, "r");
    char line[1024];
    if (file == NULL) die(path, strerror(errno));
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "#\n")] = 0;
        if (line[strspn(line, " \t")] != 0) take(line);
    }
    fclose(file);
}

static void take_host(char *line) {
    struct host *host = &hosts[n_hosts];
    if (n_hosts == HOSTS || sscanf(line, "%63s %u %63s", host->name, &host->cpus, host->address) != 3) die("hosts: this is no NAME CPUS ADDRESS", line);
    n_hosts++;
}

/* The ports of a kind are parsed once; no cycle reads a name. */
static void take_kind(char *line) {
    struct kind *kind = &kinds[n_kinds];
    pr_port ports[PORTS];
    uint32_t n = 0;
    if (n_kinds == KINDS) die("kinds: more than there is room for", line);
    char *save, *word = strtok_r(line, " \t", &save);
    snprintf(kind->name, sizeof kind->name, "%s", word);
    n_kinds++;
    if ((word = strtok_r(NULL, " \t", &save)) == NULL) die("kinds: one without a SERVICE", line);
    snprintf(kind->service, sizeof kind->service, "%s", word);
    while ((word = strtok_r(NULL, " \t", &save)) != NULL) {
        char *want = word, *name = strsep(&want, "="), *udp = want ? strstr(want, "/udp") : NULL, *block = want ? strchr(want, '*') : NULL;
        if (want == NULL || n == PORTS) die("kinds: too many ports, or one that is not NAME=NUMBER or NAME=any", word);
        pr_port port = {.name = text(name), .count = 1, .proto = udp ? PR_UDP : PR_TCP};
        if (strncmp(want, "any", 3) != 0 && (port.fixed = (uint16_t)strtoul(want, NULL, 10)) == 0) die("kinds: neither any nor a number", want);
        if (block != NULL && (port.count = (uint16_t)strtoul(block + 1, NULL, 10)) == 0) die("kinds: a block of nothing", want);
        kind->numbers += port.count;
        ports[n++] = port;
    }
    if (kind->numbers > NUMBERS) die("kinds", "too many numbers");
    pr_profile profile = {.size = sizeof profile, .name = text(kind->name), .service = text(kind->service), .ports = ports, .n_ports = n, .port_size = sizeof *ports};
    must(api->profile_put(ctx, &profile, &kind->id), "profile_put");
}

static void take_job(char *line) {
    struct job *job = &jobs[n_jobs];
    char kind[32];
    unsigned long long id, at, runtime;
    if (n_jobs == JOBS || sscanf(line, "%llu %llu %31s %u %u %u %llu", &id, &at, kind, &job->replicas, &job->cpus, &job->priority, &runtime) != 7)
        die("jobs: too many, or this is no ID AT_MS KIND REPLICAS CPUS PRIORITY RUNTIME_MS", line);
    job->id = id, job->at = at, job->runtime = runtime;
    while (job->kind < n_kinds && strcmp(kinds[job->kind].name, kind) != 0) job->kind++;
    if (job->kind == n_kinds || job->replicas == 0 || job->replicas > REPLICAS || job->cpus == 0 || job->priority >= PRIORITIES)
        die("jobs: an unknown kind, too many replicas, no replicas or cpus, or a priority above 9", line);
    n_jobs++;
}

/* The start: create, hosts, kinds, restore ------------------------------------------------------------------------------------- */

static void put_hosts(void) {
    pr_host put[HOSTS];
    for (uint32_t h = 0; h < n_hosts; h++) put[h] = (pr_host){.size = sizeof *put, .host = h, .name = text(hosts[h].name)};
    must(api->host_put(ctx, put, n_hosts), "host_put");
}

static pr_want want_of(const struct job *job, uint32_t r) {
    return (pr_want){.job = job->id, .replica = r, .incarnation = job->incarnation, .profile = kinds[job->kind].id, .host = job->replica[r].host};
}

/* Brings one record per replica: what the log says is held, or rests. The new ids come back; the old ones died with the process. What rests is brought by its
 * numbers alone, whatever its kind is today; what runs must still have its host, and a kind with as many ports. */
static void restore_job(struct job *job, uint32_t state, uint32_t left_ms) {
    pr_rec records[REPLICAS] = {0};
    pr_grant grants[REPLICAS];
    uint16_t numbers[REPLICAS * NUMBERS] = {0};
    uint32_t each = job->n_numbers, n = 0;
    for (uint32_t r = 0; r < job->replicas; r++) {
        int gone = job->replica[r].host == HOSTS, rests_now = state == PR_P_COOLING;
        if (gone && rests_now) continue;
        if (gone) die("hosts", "a job of the log runs on a host that is not in this file");
        if (!rests_now && each != kinds[job->kind].numbers) die(kinds[job->kind].name, "a job of the log runs with another number of ports than this kind has");
        records[n] = (pr_rec){.who = want_of(job, r), .n_ports = each, .port_off = n * each, .state = state, .cool_left_ms = left_ms, .ready = PR_E_READY};
        if (rests_now) records[n].flags = PR_REC_TCP | PR_REC_UDP;
        memcpy(numbers + n++ * each, job->replica[r].numbers, each * sizeof *numbers);
    }
    must(api->restore_put(ctx, records, n, numbers, n * each, grants), "restore_put");
    for (uint32_t r = 0; r < n; r++) job->replica[r].id = grants[r].id;
}

static void restore(void) {
    uint32_t conflicts, held = 0;
    for (uint32_t j = 0; j < n_jobs; j++) {
        if (jobs[j].state != RUNNING && jobs[j].state != STOPPING) continue;
        restore_job(&jobs[j], jobs[j].state == RUNNING ? PR_P_HELD : PR_P_RELEASING, 0);
        held++;
    }
    for (uint32_t i = 0; i < n_rests; i++) {
        uint64_t since = now - rests[i].ended;
        if (since < COOL_MS) restore_job(&rests[i].job, PR_P_COOLING, (uint32_t)(COOL_MS - since));
    }
    must(api->restore_end(ctx, 0, now, &conflicts), "restore_end");
    if (held > 0) say("restored %u jobs, %u conflicts", held, conflicts);
}

/* Everything that the plugin holds, in the words of the log: what an operator compares. */
static void print_held(void) {
    pr_rec records[16];
    uint16_t numbers[1024];
    uint64_t cursor = 0;
    uint32_t n, n_numbers;
    for (;;) {
        must(api->export_(ctx, &cursor, records, 16, numbers, 1024, &n, &n_numbers), "export_");
        if (n == 0) return;
        for (uint32_t i = 0; i < n; i++) {
            const pr_rec *it = &records[i];
            if (it->state == PR_P_COOLING) continue;
            printf("held %llu.%u.%u %s:", (unsigned long long)it->who.job, it->who.replica, it->who.incarnation, hosts[it->who.host].name);
            for (uint32_t p = 0; p < it->n_ports; p++) printf("%s%u", p ? "," : "", numbers[it->port_off + p]);
            printf("\n");
        }
    }
}

/* The nodes ---------------------------------------------------------------------------------------------------------------------- */

/* Starts every replica with its environment. A node starts one placement once, however often it is told: the name of its file has the incarnation. */
static void launch(const struct job *job) {
    for (uint32_t r = 0; r < job->replicas; r++) {
        char path[512], part[512], env[4096];
        uint32_t need;
        must(api->env(ctx, job->replica[r].id, 0, env, sizeof env, &need), "env");
        snprintf(path, sizeof path, "%s/%llu.%u.%u", run_dir, (unsigned long long)job->id, r, job->incarnation);
        if (access(path, F_OK) == 0) continue;
        snprintf(part, sizeof part, "%s/starting", run_dir); /* Whole or not at all, whenever we are killed. */
        int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0) die(part, strerror(errno));
        say("launch job %llu replica %u on %s", (unsigned long long)job->id, r, hosts[job->replica[r].host].name);
        for (const char *v = env; *v != 0; v += strlen(v) + 1) {
            if (dprintf(fd, "%s\n", v) < 0) die(path, strerror(errno));
            if (strstr(v, "PORT_") != NULL) printf("             %s\n", v);
        }
        if (close(fd) != 0 || rename(part, path) != 0) die(path, strerror(errno));
        point("launch");
    }
}

/* What agents say once: where their hosts are reached. */
static void report_addresses(void) {
    for (uint32_t h = 0; h < n_hosts; h++) {
        pr_addr address = {.family = strchr(hosts[h].address, ':') ? 6 : 4};
        if (inet_pton(address.family == 6 ? AF_INET6 : AF_INET, hosts[h].address, address.ip) != 1) die("hosts", hosts[h].address);
        must(api->report_addr(ctx, h, now + 1, &address, 1), "report_addr");
    }
}

/* What workers say: here, that everything answers from the tick after its start on. Said again, it is out of date and harmless. */
static void report_ready(void) {
    for (uint32_t j = 0; j < n_jobs; j++) {
        pr_ready ready[REPLICAS];
        if (jobs[j].state != RUNNING || jobs[j].started == now) continue;
        for (uint32_t r = 0; r < jobs[j].replicas; r++) ready[r] = (pr_ready){.id = jobs[j].replica[r].id, .seq = 1, .run = 1, .state = PR_E_READY};
        int32_t code = api->report_ready(ctx, ready, jobs[j].replicas, NULL);
        if (code != PR_ESTALE) must(code, "report_ready");
    }
}

/* The cycle ---------------------------------------------------------------------------------------------------------------------- */

/* How many replicas of a job each host takes: by its ports, as the plugin says, and by its cpus, which are ours. Fills the hosts of the job's replicas. */
static int choose(pr_txn txn, struct job *job, uint64_t at_ms) {
    pr_need need = {.profile = kinds[job->kind].id, .at_ms = at_ms};
    uint64_t fits;
    uint16_t most[HOSTS];
    uint32_t n = 0;
    must(api->feasible(txn, &need, NULL, &fits, most, 1), "feasible");
    for (uint32_t h = 0; h < n_hosts && n < job->replicas; h++) {
        uint32_t room = (hosts[h].cpus - hosts[h].used) / job->cpus;
        if ((fits >> h & 1) == 0) continue;
        for (uint32_t k = 0; k < room && k < most[h] && n < job->replicas; k++) job->replica[n++].host = h;
    }
    return n == job->replicas;
}

/* Takes the numbers of all replicas, or none. They are ours alone from here on, and seen by no reader before commit. */
static int reserve(pr_txn txn, struct job *job) {
    pr_want wants[REPLICAS];
    pr_grant grants[REPLICAS];
    uint16_t numbers[REPLICAS * NUMBERS];
    uint32_t need;
    if (!choose(txn, job, 0)) return 0;
    for (uint32_t r = 0; r < job->replicas; r++) wants[r] = want_of(job, r);
    int32_t code = api->reserve(txn, PR_RESERVE_ALL, wants, job->replicas, grants, numbers, REPLICAS * NUMBERS, &need);
    if (code == PR_ENOPORT) return 0; /* Blocks: feasible knows only that one fits. */
    must(code, "reserve");
    for (uint32_t r = 0; r < job->replicas; r++) {
        job->replica[r].id = grants[r].id;
        job->n_numbers = grants[r].n_ports;
        memcpy(job->replica[r].numbers, numbers + grants[r].port_off, grants[r].n_ports * sizeof *numbers);
    }
    use_cpus(job, 1);
    return 1;
}

/* Why a job waits, in a line: how many hosts for which reason. */
static void explain(pr_txn txn, const struct job *job) {
    pr_need need = {.profile = kinds[job->kind].id};
    uint32_t reasons[32];
    must(api->explain_all(txn, &need, NULL, 0, reasons, 32), "explain_all");
    char words[256] = "";
    for (uint32_t reason = 1; reason < 32; reason++) {
        size_t n = strlen(words);
        if (reasons[reason] > 0) snprintf(words + n, sizeof words - n, " %u %s", reasons[reason], api->reason_(reason));
    }
    say("job %llu waits:%s", (unsigned long long)job->id, words[0] ? words : " no cpus");
}

/* Whom to end so that a job could start: a what-if in which one after the other of the less important ends. What it had cools then, so it is asked about later. */
static struct job *victim_of(struct job *job) {
    pr_txn txn;
    uint32_t mark;
    struct job *victim = NULL, trial = *job;
    must(api->txn_begin(ctx, PR_TXN_WHATIF, now, &txn), "txn_begin");
    must(api->mark(txn, &mark), "mark");
    int only_cools = choose(txn, &trial, now + COOL_MS); /* Then it has to wait, and nobody needs to end. */
    for (uint32_t j = 0; j < n_jobs && !only_cools; j++) {
        struct job *other = &jobs[j];
        pr_alloc ids[REPLICAS];
        if (other->state != RUNNING || other->priority >= job->priority || (victim != NULL && victim->priority <= other->priority)) continue;
        for (uint32_t r = 0; r < other->replicas; r++) ids[r] = other->replica[r].id;
        must(api->give(txn, ids, other->replicas, NULL), "give");
        use_cpus(other, -1);
        if (choose(txn, &trial, now + COOL_MS)) victim = other;
        use_cpus(other, 1);
        must(api->rollback(txn, mark), "rollback");
    }
    must(api->abort_(txn), "abort_");
    return victim;
}

/* Orders the stop of a job: readers are sent elsewhere, its numbers stay held until it is gone. */
static void preempt(struct job *victim, const struct job *job) {
    pr_alloc ids[REPLICAS];
    for (uint32_t r = 0; r < victim->replicas; r++) ids[r] = victim->replica[r].id;
    write_log("stop %llu %llu", (unsigned long long)victim->id, (unsigned long long)job->id);
    sync_log();
    victim->state = STOPPING;
    victim->behind = job->id;
    must(api->release_begin(ctx, ids, victim->replicas, 0, NULL), "release_begin");
    say("job %llu is stopped for job %llu", (unsigned long long)victim->id, (unsigned long long)job->id);
    /* It waits: nobody who takes any number gets the ones it asks for by name. */
    pr_want want = want_of(job, 0);
    want.host = PR_ANY;
    must(api->wait_put(ctx, &want, 1, NULL), "wait_put");
}

/* Whose time is over, and who was stopped at an earlier tick, is gone by now. */
static void end_jobs(void) {
    for (uint32_t j = 0; j < n_jobs; j++) {
        struct job *job = &jobs[j];
        uint32_t done;
        if (job->state != STOPPING && (job->state != RUNNING || now < job->started + job->runtime)) continue;
        write_log("end %llu", (unsigned long long)job->id);
        sync_log();
        must(api->release_job(ctx, job->id, PR_ANY, 1, now, &done), "release_job");
        say("job %llu has ended", (unsigned long long)job->id);
        ended(job);
    }
}

static void cycle(void) {
    struct job *placed[JOBS], *waits = NULL;
    uint32_t n = 0;
    uint64_t commit_no, next_ms;
    pr_txn txn;
    end_jobs();
    must(api->txn_begin(ctx, 0, now, &txn), "txn_begin");
    for (uint32_t priority = PRIORITIES; priority-- > 0;) {
        for (uint32_t j = 0; j < n_jobs; j++) {
            struct job *job = &jobs[j];
            if (job->state != PENDING || job->at > now || job->priority != priority) continue;
            /* What cools is its own service's at once: the victim would be back before the one that it was stopped for. */
            if (job->behind != 0 && job_of(job->behind)->state == PENDING) continue;
            if (reserve(txn, job)) {
                placed[n++] = job;
                continue;
            }
            if (waits == NULL) explain(txn, job);
            waits = waits ? waits : job;
        }
    }
    if (n > 0) point("reserve");           /* Died here: nothing was promised, nothing is held. */
    for (uint32_t i = 0; i < n; i++) log_start(placed[i]);
    if (n > 0) point("torn");
    if (n > 0) sync_log();
    if (n > 0) point("log");               /* Died here or later: it is promised, and restored. */
    must(api->commit(txn, &commit_no), "commit");
    if (n > 0) point("commit");
    for (uint32_t i = 0; i < n; i++) {
        placed[i]->state = RUNNING;
        placed[i]->started = now;
        launch(placed[i]);
    }
    int stopping = 0;
    for (uint32_t j = 0; j < n_jobs; j++) stopping |= jobs[j].state == STOPPING;
    struct job *victim = waits == NULL || stopping ? NULL : victim_of(waits);
    if (victim != NULL) preempt(victim, waits);
    must(api->pump(ctx, now, &next_ms), "pump"); /* Once after each cycle: readers see what it did. */
}

/* Readers ------------------------------------------------------------------------------------------------------------------------ */

static void print_endpoint(const char *sign, const pr_endpoint *it) {
    char service[300], port[64], address[64] = "nowhere";
    uint32_t need;
    must(api->text(ctx, PR_TEXT_SERVICE, it->service, service, sizeof service, &need), "text");
    must(api->text(ctx, PR_TEXT_PORT, it->name, port, sizeof port, &need), "text");
    if (it->family != 0) inet_ntop(it->family == 6 ? AF_INET6 : AF_INET, it->ip, address, sizeof address);
    say("%s %s %s replica %u at %s port %u, state %u", sign, service, port, it->replica, address, it->port, it->state);
}

static void resolve_all(void) {
    for (uint32_t k = 0; k < n_kinds; k++) {
        pr_endpoint all[256];
        uint32_t n;
        uint64_t revision;
        if (must(api->resolve(ctx, text(kinds[k].service), text(""), 0, all, 256, &n, &revision), "resolve") == PR_OK)
            for (uint32_t i = 0; i < n; i++) print_endpoint("=", &all[i]);
    }
}

static uint64_t clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The scheduler's own poll loop, with one watch of all services in it; the descriptor is never read. Takes as long as a tick does: no time on a virtual clock. */
static void look(pr_watch watch, int fd) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    uint64_t end = clock_ms() + (is_real ? TICK_MS : 0);
    for (;;) {
        uint64_t at = clock_ms();
        if (poll(&ready, 1, at < end ? (int)(end - at) : 0) <= 0) return;
        pr_change changes[32];
        uint32_t n, flags;
        must(api->watch_next(watch, changes, 32, &n, &flags), "watch_next");
        if (flags & PR_RESET) resolve_all(); /* Too much was missed: the whole set, then changes again. */
        for (uint32_t i = 0; i < n; i++)
            if (changes[i].kind != PR_CH_SERVICE_GONE) print_endpoint(changes[i].kind == PR_CH_UPSERT ? "+" : "-", &changes[i].ep);
    }
}

static int at_work(void) {
    for (uint32_t j = 0; j < n_jobs; j++)
        if (jobs[j].state != DONE) return 1;
    return 0;
}

static void load(const char *path) {
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) die(path, dlerror());
    int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *);
    *(void **)&get_api = dlsym(so, "pr_get_api");
    if (get_api == NULL) die(path, dlerror());
    pr_hostinfo host = {sizeof host, PR_ABI, PR_CAP_ENDPOINTS};
    uint32_t speaks = 0;
    if (get_api(&host, &api, &speaks) == PR_OK) return;
    fprintf(stderr, "%s: it speaks version %u; version %u is wanted, and endpoints\n", path, speaks, PR_ABI);
    exit(1);
}

int main(int argc, char **argv) {
    uint64_t until = PR_NEVER;
    if (argc < 7) die("usage", "mini_scheduler PLUGIN HOSTS KINDS JOBS LOG RUN_DIR [--real] [--until MS] [--kill-at POINT[:N]]");
    for (int a = 7; a < argc; a++) {
        if (strcmp(argv[a], "--real") == 0) is_real = 1;
        else if (strcmp(argv[a], "--until") == 0 && a + 1 < argc) until = strtoull(argv[++a], NULL, 10);
        else if (strcmp(argv[a], "--kill-at") == 0 && a + 1 < argc) {
            char *times = argv[++a];
            kill_at = strsep(&times, ":");
            if (times != NULL) kill_in = strtol(times, NULL, 10);
        } else die("unknown argument", argv[a]);
    }
    run_dir = argv[6];
    load(argv[1]);
    pr_config config = {.size = sizeof config, .max_hosts = HOSTS, .max_allocs = JOBS * REPLICAS, .max_profiles = KINDS, .cool_ms = COOL_MS};
    must(api->create(&config, &ctx), "create");
    each_line(argv[2], take_host);
    put_hosts();
    each_line(argv[3], take_kind);
    each_line(argv[4], take_job);
    replay(argv[5]); /* The clock goes on where the log ends. */
    restore();
    print_held();
    report_addresses();
    pr_watch watch;
    int fd;
    must(api->watch_open(ctx, text(""), 0, &watch, &fd), "watch_open");
    for (uint32_t j = 0; j < n_jobs; j++) /* Died between commit and launch: it is launched now. */
        if (jobs[j].state == RUNNING) launch(&jobs[j]);
    for (; at_work() && now <= until; now += TICK_MS) {
        report_ready();
        cycle();
        look(watch, fd);
    }
    resolve_all();
    print_held();
    must(api->watch_close(watch), "watch_close");
    must(api->destroy(ctx), "destroy");
    return 0;
}
