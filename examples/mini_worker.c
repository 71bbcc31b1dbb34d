/* A worker in C: runs one service through the supervision half of the table. It decides nothing itself: what happened goes in as
 * events, what is to be done comes out as effects, and poll sleeps until the machine's next deadline. Readiness is asked by the probe
 * command, so that a probe means the same here as everywhere. Killed, it leaves the service running; started again with the same state
 * file in the same boot, it takes the service over.
 *
 *   cargo build --release -p portreeve-plugin -p portreeve-cli
 *   cc -Wall -Wextra -Iinclude examples/mini_worker.c -o mini_worker
 *   ./mini_worker target/release/libportreeve_plugin.so target/release/portreeve profile.json state 20007 python3 -m http.server 20007
 *
 * A profile.json to begin with:
 *   {"name": "web", "command": ["-"], "ports": {"http": "any"}, "readiness": {"tcp": {"port": "http"}, "interval": "1s"}}
 *
 * One line on stdout per report, such as "run 1 READY". TERM and INT stop the service by the profile's rule, HUP restarts it.
 * Exit code: 0 stopped or succeeded, 1 failed or gave up, 75 a stranger has the port, 2 it could not begin.
 *
 * Left out, as a real worker has it from elsewhere: the command comes from the command line and not from the profile (which is the
 * machine's to read), the port from a grant, the rest of the environment from env(), reports go to a scheduler with a seq, and a cgroup holds what leaves its process group. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "portreeve.h"

static const pr_api *api;
static pr_sup sup;
static const char *probe_program, *state_file, *port_text;
static char **service_argv;
static char boot_id[64];
static uint64_t now, planned; /* this wake-up, and when it was to come */
static int ending = -1;       /* our exit code, once a report was final */
static int dirty;             /* something worth saving happened */
static int has_state;         /* there is a state file of this life of the service */
static char untold[8192];      /* reports that were not told yet */

/* The service: the one process we started last, and the group that it leads. */
static struct { pid_t pid; uint64_t born; int fd; uint32_t run; int group_left; } service = {.fd = -1};
/* Probes in flight: one of a kind at most. */
static struct { pid_t pid; uint32_t run, number; uint64_t give_up, timeout; } probes[PR_SK_READINESS + 1];

static _Noreturn void fail(const char *what) { /* the system refused */
    perror(what);
    exit(2);
}

static void must(int32_t code, const char *call) { /* the plugin did; last_error has the words */
    char words[4096];
    uint32_t need;
    if (code >= 0) return;
    if (api->last_error(words, sizeof words, &need) != PR_OK) strcpy(words, "no words");
    fprintf(stderr, "%s: %d: %s\n", call, (int)code, words);
    exit(2);
}

static uint64_t clock_ms(void) { /* Stands still while the machine sleeps, never falls, and begins anew with each boot. */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static size_t read_file(const char *path, char *buf, size_t cap) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    size_t n = fread(buf, 1, cap, file);
    fclose(file);
    return n;
}

/* A pid alone may be somebody else's by now; with the moment of its birth it is not. State 'Z': it has ended. */
static int look_up(pid_t pid, char *state, pid_t *group, uint64_t *born) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    size_t n = read_file(path, text, sizeof text - 1);
    text[n] = 0;
    const char *after = strrchr(text, ')'); /* the name before may hold anything */
    unsigned long long start;
    const char *form = " %c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu"; /* fields 3, 5 and 22 of proc(5) */
    if (after == NULL || sscanf(after + 1, form, state, group, &start) != 3) return 0;
    *born = start;
    return 1;
}

static int group_lives(pid_t leader) {
    DIR *all = leader > 0 ? opendir("/proc") : NULL;
    int lives = 0;
    for (struct dirent *entry; all != NULL && !lives && (entry = readdir(all)) != NULL;) {
        char state;
        pid_t group;
        uint64_t born;
        if (isdigit((unsigned char)entry->d_name[0]) && look_up((pid_t)atoi(entry->d_name), &state, &group, &born)) lives = group == leader && state != 'Z';
    }
    if (all != NULL) closedir(all);
    return lives;
}

/* The state file: whose boot, which process, which run; then the bytes of the machine. Replaced at once, so that it is whole whenever we
 * are killed. What happened after the newest one is found out again when it is loaded. 0: there is no room for it now, and errno says so;
 * the old one stays. Only a worker that never had one ends by that. */
static int save(void) {
    static char bytes[1 << 18];
    static int complained;
    char path[4096];
    uint32_t need;
    must(api->sup_save(sup, bytes, sizeof bytes, &need), "sup_save");
    snprintf(path, sizeof path, "%s.new", state_file);
    FILE *file = fopen(path, "wb");
    int written = file != NULL && fprintf(file, "%s %d %llu %u\n", boot_id, (int)service.pid, (unsigned long long)service.born, service.run) > 0 &&
                  fwrite(bytes, 1, need, file) == need && fflush(file) == 0;
    int cause = errno;
    if (file != NULL && fclose(file) != 0) written = 0;
    if (written && rename(path, state_file) == 0) {
        complained = dirty = 0;
        has_state = 1;
        return 1;
    }
    if (written) cause = errno;
    unlink(path);
    errno = cause;
    if (!has_state) fail(path);
    if (!complained++) perror(path);
    errno = cause;
    return 0;
}

static void happened(pr_sup_event event) {
    event.size = sizeof event;
    must(api->sup_event(sup, now, &event), "sup_event");
}

static int port_is_taken(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port_text))};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    int taken = bind(fd, (struct sockaddr *)&at, sizeof at) != 0 && errno == EADDRINUSE;
    close(fd);
    return taken;
}

/* In the child: nothing of ours but stdout and stderr, ordinary signals, a group of its own. */
static _Noreturn void become(char **argv, int tell) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    execvp(argv[0], argv);
    int cause = errno;
    if (write(tell, &cause, sizeof cause) < 0) _exit(126);
    _exit(127);
}

static void start(uint32_t run) {
    service.run = run;
    service.pid = 0;
    service.group_left = 0;
    dirty = 1;
    if (port_is_taken()) { /* before any process of this run exists, so it is a stranger */
        happened((pr_sup_event){.kind = PR_SE_PORT_CONFLICT, .run = run, .code = atoi(port_text), .flags = PR_TCP});
        return;
    }
    int go[2], told[2], cause = 0;
    if (pipe2(go, O_CLOEXEC) != 0 || pipe2(told, O_CLOEXEC) != 0) fail("pipe2");
    pid_t child = fork();
    if (child == 0) { /* It waits until the state file knows it: if we are killed before that, it ends without having begun. */
        char byte;
        close(go[1]);
        if (read(go[0], &byte, 1) != 1) _exit(126);
        setenv("PORT", port_text, 1);
        become(service_argv, told[1]);
    }
    cause = child < 0 ? errno : 0;
    close(go[0]);
    close(told[1]);
    if (child > 0) {
        char state;
        pid_t group;
        service.pid = child;
        service.group_left = 1;
        if (!look_up(child, &state, &group, &service.born)) service.born = 0;
        service.fd = (int)syscall(SYS_pidfd_open, child, 0);
        if (service.fd < 0) fail("pidfd_open");
        if (!save()) cause = errno; /* A service that no state file knows would be started twice: it has not begun, and ends now. */
        else if (write(go[1], "", 1) != 1) fail("write"); /* cannot be: it waits for this byte */
        else if (read(told[0], &cause, sizeof cause) != (ssize_t)sizeof cause) cause = 0; /* end of file: exec has closed it */
    }
    close(go[1]);
    close(told[0]);
    if (cause == 0) {
        happened((pr_sup_event){.kind = PR_SE_SPAWNED, .run = run});
        return;
    }
    if (child > 0) waitpid(child, NULL, 0);
    if (service.fd >= 0) close(service.fd);
    service.fd = -1;
    happened((pr_sup_event){.kind = PR_SE_SPAWN_FAILED, .run = run, .code = cause});
}

static void begin_probe(const pr_sup_effect *e) {
    char timeout[32], pid[16];
    snprintf(timeout, sizeof timeout, "%llums", (unsigned long long)e->ms);
    snprintf(pid, sizeof pid, "%d", (int)service.pid);
    char *argv[] = {(char *)probe_program, "probe", "tcp", "--port", (char *)port_text, "--pid", pid, "--timeout", timeout, NULL};
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, 1);
        become(argv, 2);
    }
    if (child < 0) { /* Our own trouble says nothing about the service. */
        happened((pr_sup_event){.kind = PR_SE_PROBE_RESULT, .run = e->run, .probe_kind = e->probe_kind, .probe = e->number, .result = PR_SO_INCONCLUSIVE});
        return;
    }
    probes[e->probe_kind].pid = child;
    probes[e->probe_kind].run = e->run;
    probes[e->probe_kind].number = e->number;
    probes[e->probe_kind].timeout = e->ms;
    probes[e->probe_kind].give_up = now + e->ms + 1000; /* the command keeps the time itself */
}

/* Killed at once, so the wait is a short one. */
static void drop_probe(uint32_t kind) {
    if (probes[kind].pid == 0) return;
    kill(-probes[kind].pid, SIGKILL);
    kill(probes[kind].pid, SIGKILL);
    waitpid(probes[kind].pid, NULL, 0);
    probes[kind].pid = 0;
}

static void end_probe(uint32_t kind, uint32_t result) {
    uint32_t run = probes[kind].run, number = probes[kind].number;
    probes[kind].pid = 0;
    happened((pr_sup_event){.kind = PR_SE_PROBE_RESULT, .run = run, .probe_kind = kind, .probe = number, .result = result});
}

static void report(const pr_sup_effect *e) {
    static const char *const reports[] = {"?", "READY", "NOTREADY", "BACKOFF", "RESTARTED", "GAVEUP", "SUCCEEDED", "FAILED", "STOPPED", "STUCK",
                                          "PORT_CONFLICT"};
    static const char *const reasons[] = {"", "exit", "signal", "status unknown", "start failed: errno", "pre-exec", "startup probe failed",
                                          "liveness probe failed", "readiness probe failed", "user", "stop", "stale record"};
    char counted[64] = "", why[96] = "", code[16] = "";
    if (e->report == PR_SR_RESTARTED) snprintf(counted, sizeof counted, " %u", e->count);
    if (e->report == PR_SR_GAVEUP) snprintf(counted, sizeof counted, " after %u", e->count);
    if (e->report == PR_SR_BACKOFF) snprintf(counted, sizeof counted, " %llu ms", (unsigned long long)e->ms);
    if (e->reason != 0 && e->reason <= PR_SW_STALE_RECORD) snprintf(why, sizeof why, ": %s", reasons[e->reason]);
    if (e->reason != 0 && e->reason <= PR_SW_PROBE && e->reason != PR_SW_UNKNOWN) snprintf(code, sizeof code, " %d", e->code);
    size_t at = strlen(untold);
    snprintf(untold + at, sizeof untold - at, "run %u %s%s%s%s\n", e->run, reports[e->report <= PR_SR_PORT_CONFLICT ? e->report : 0], counted, why, code);
    switch (e->report) {
    case PR_SR_SUCCEEDED: case PR_SR_STOPPED: ending = 0; break;
    case PR_SR_FAILED: case PR_SR_GAVEUP: ending = 1; break;
    case PR_SR_PORT_CONFLICT: ending = 75; break;
    default: break;
    }
}

/* Saved before it is told: whoever takes over never says less than was heard. Without room for it, it is told later; only the end is not kept back. */
static void tell(void) {
    if (dirty && !save() && ending < 0) return;
    fputs(untold, stdout);
    fflush(stdout);
    untold[0] = 0;
}

static void perform(void) {
    pr_sup_effect e = {.size = sizeof e};
    int32_t more;
    while ((more = api->sup_next_effect(sup, &e)) == 1) {
        if (e.kind != PR_SF_PROBE) dirty = 1;
        switch (e.kind) {
        case PR_SF_SPAWN: start(e.run); break;
        case PR_SF_TERM:
            if (service.fd >= 0) { /* by descriptor: never a stranger with the same number */
                syscall(SYS_pidfd_send_signal, service.fd, SIGTERM, NULL, 0);
                syscall(SYS_pidfd_send_signal, service.fd, SIGCONT, NULL, 0);
            }
            break;
        case PR_SF_KILL_GROUP: /* its answer, GROUP_EMPTY, comes from the loop */
            if (service.group_left && group_lives(service.pid)) kill(-service.pid, SIGKILL);
            service.group_left = 2;
            break;
        case PR_SF_PROBE: begin_probe(&e); break;
        case PR_SF_CANCEL_PROBE:
            drop_probe(e.probe_kind);
            break;
        case PR_SF_REPORT: report(&e); break;
        default: break; /* of a later version: nothing that this one knows how to do */
        }
    }
    must(more, "sup_next_effect");
}

static pr_sup_event end_of(int status, int known) {
    pr_sup_event e = {.kind = PR_SE_EXITED, .run = service.run};
    if (!known) e.flags = PR_SX_UNKNOWN; /* not our child, as its parent was killed */
    else if (WIFEXITED(status)) e.code = WEXITSTATUS(status);
    else {
        e.code = WTERMSIG(status);
        e.flags = PR_SX_SIGNAL | (WCOREDUMP(status) ? (uint32_t)PR_SX_CORE : 0u);
    }
    return e;
}

/* Everything that has happened, in the order that one instant has: the end of the process, the end of its group, results of probes. */
static void look_around(void) {
    struct pollfd ended = {.fd = service.fd, .events = POLLIN};
    int status = 0;
    if (service.fd >= 0 && poll(&ended, 1, 0) == 1) {
        int known = waitpid(service.pid, &status, 0) == service.pid;
        close(service.fd);
        service.fd = -1;
        happened(end_of(status, known));
        perform();
    }
    /* What the service left behind is reaped by its group: a wait for anybody would take the probes' statuses. */
    while (service.fd < 0 && service.pid > 0 && waitpid(-service.pid, NULL, WNOHANG) > 0) {}
    if (service.group_left == 2 && service.fd < 0 && !group_lives(service.pid)) {
        service.group_left = 0;
        happened((pr_sup_event){.kind = PR_SE_GROUP_EMPTY, .run = service.run});
        perform();
    }
    for (uint32_t kind = PR_SK_STARTUP; kind <= PR_SK_READINESS; kind++) {
        if (probes[kind].pid == 0) continue;
        int over = waitpid(probes[kind].pid, &status, WNOHANG) == probes[kind].pid;
        int code = over && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        /* Woken much later than planned, we missed whatever it said: that is our fault and not the service's. */
        int stalled = now > planned && now - planned > (probes[kind].timeout < 5000 ? probes[kind].timeout : 5000);
        if (over) end_probe(kind, code == 0 ? PR_SO_OK : code == 1 && !stalled ? PR_SO_FAIL : PR_SO_INCONCLUSIVE);
        else if (now >= probes[kind].give_up) {
            drop_probe(kind);
            end_probe(kind, stalled ? PR_SO_INCONCLUSIVE : PR_SO_TIMEOUT);
        }
    }
    perform();
}

/* Whether the state file led back to a service of this boot. */
static int take_over(pr_str profile) {
    static char bytes[1 << 18];
    size_t n = read_file(state_file, bytes, sizeof bytes);
    char *end = memchr(bytes, '\n', n), boot[64], state;
    unsigned long long born;
    int pid;
    if (n == 0) return 0;
    if (end != NULL) *end = 0;
    if (end == NULL || sscanf(bytes, "%63s %d %llu %u", boot, &pid, &born, &service.run) != 4) {
        fprintf(stderr, "%s: it is damaged; remove it if its service does not run\n", state_file);
        exit(2);
    }
    if (strcmp(boot, boot_id) != 0) return 0;
    has_state = 1;
    must(api->sup_load(profile, end + 1, n - (size_t)(end + 1 - bytes), &sup), state_file);
    service.pid = pid;
    service.born = born;
    pid_t group;
    uint64_t birth = born;
    int lives = pid != 0 && look_up(pid, &state, &group, &birth) && birth == born && state != 'Z';
    service.group_left = pid != 0 && birth == born; /* A number that is somebody else's by now is no group's of ours either. */
    if (lives) service.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    lives = service.fd >= 0;
    happened((pr_sup_event){.kind = PR_SE_ADOPT});
    perform(); /* what was decided and perhaps not done: doing it again is harmless */
    /* We may have been killed between an event and its record; told again, it has no effect. */
    if (service.run != 0 && lives) happened((pr_sup_event){.kind = PR_SE_SPAWNED, .run = service.run});
    if (service.run != 0 && !lives) happened(end_of(0, 0));
    perform();
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 7) {
        fprintf(stderr, "usage: mini_worker PLUGIN PORTREEVE PROFILE.json STATE PORT COMMAND...\n");
        return 2;
    }
    probe_program = argv[2];
    state_file = argv[4];
    port_text = argv[5];
    service_argv = argv + 6;
    void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *);
    *(void **)&get_api = dlsym(so, "pr_get_api");
    pr_hostinfo host = {sizeof host, PR_ABI, PR_CAP_SUPERVISION};
    if (get_api == NULL) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    uint32_t speaks = 0;
    if (get_api(&host, &api, &speaks) != PR_OK) {
        fprintf(stderr, "%s: it speaks version %u; version %u is wanted, and supervision\n", argv[1], speaks, PR_ABI);
        return 2;
    }

    static char json[1 << 20];
    pr_str profile = {json, read_file(argv[3], json, sizeof json)};
    if (profile.n == 0) { fprintf(stderr, "%s: it cannot be read, or is empty\n", argv[3]); return 2; }
    size_t n = read_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id - 1);
    boot_id[n > 0 && boot_id[n - 1] == '\n' ? n - 1 : n] = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* what the service leaves behind is ours to reap */
    sigset_t signals;
    sigemptyset(&signals);
    for (const int *s = (const int[]){SIGTERM, SIGINT, SIGHUP, SIGCHLD, 0}; *s != 0; s++) sigaddset(&signals, *s);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0) fail("signalfd");

    now = planned = clock_ms();
    if (take_over(profile)) {
        printf("run %u taken over\n", service.run);
        fflush(stdout);
    } else {
        must(api->sup_new(profile, now ^ (uint64_t)getpid(), &sup), argv[3]);
        happened((pr_sup_event){.kind = PR_SE_START});
        perform();
    }
    while (ending < 0) {
        tell();
        uint64_t next;
        must(api->sup_next_deadline(sup, &next), "sup_next_deadline");
        for (int kind = PR_SK_STARTUP; kind <= PR_SK_READINESS; kind++)
            if (probes[kind].pid != 0 && probes[kind].give_up < next) next = probes[kind].give_up;
        now = clock_ms();
        if (service.group_left == 2 && service.fd < 0 && next > now + 20) next = now + 20; /* nothing tells when a group is empty */
        if (dirty && next > now + 1000) next = now + 1000; /* the state file had no room: once more */
        planned = next > now + 60000 ? now + 60000 : next;
        struct pollfd wake[2] = {{.fd = signal_fd, .events = POLLIN}, {.fd = service.fd, .events = POLLIN}};
        poll(wake, 2, planned > now ? (int)(planned - now) : 0);
        now = clock_ms(); /* once per wake-up: one instant */
        struct signalfd_siginfo said;
        while (read(signal_fd, &said, sizeof said) == (ssize_t)sizeof said) {
            if (said.ssi_signo == SIGTERM || said.ssi_signo == SIGINT) happened((pr_sup_event){.kind = PR_SE_STOP});
            if (said.ssi_signo == SIGHUP) happened((pr_sup_event){.kind = PR_SE_USER_RESTART});
        }
        perform();
        look_around();
        must(api->sup_deadline(sup, now), "sup_deadline");
        perform();
    }
    tell();
    unlink(state_file); /* the end is told; the next start begins anew */
    must(api->sup_free(sup), "sup_free");
    return ending;
}
