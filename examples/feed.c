/* A second process's view: serves what watch_next tells as NDJSON on a Unix socket, so that an API server can answer who serves what
 * without loading the plugin. examples/read_feed.py is such a server's half.
 *
 *   cargo build --release -p portreeve-plugin
 *   cc -std=c11 -Wall -Wextra -Iinclude examples/feed.c -o feed
 *   ./feed target/release/libportreeve_plugin.so /tmp/feed.sock
 *
 * In place of a scheduler's own cycle it takes commands, a line each, on its standard input and answers each with "ok" or what is wrong:
 *
 *   host INDEX NAME IPV4          service NAME PORT...         drop NAME            quit
 *   start JOB REPLICA NAME HOST   ready JOB REPLICA            unready JOB REPLICA  stop JOB REPLICA
 *
 * A reader connects and sends one line: "new", or "since EPOCH REVISION" of the last bookmark that it has. It is sent, a line each:
 *
 *   {"reset":true}                            forget everything; the full set follows, up to the next bookmark
 *   {"upsert":{"id":..,"port":..},"revision":N}   a published port of a replica is so from now on; kept by (id, port)
 *   {"remove":{"id":..,"port":..},"revision":N}
 *   {"gone":"web.alice","revision":N}         the service is not known any more
 *   {"bookmark":N,"epoch":".."}               whole up to here: take it as one, and remember it for the next time
 *
 * The epoch names this life of the feed, as revisions begin anew in the next. What a reader costs: one watch, one buffer, and one version
 * of the full set while it reads that. One that does not read is not waited for: it falls behind in its own watch, and is reset.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "portreeve.h"

enum { READERS = 64, ROWS = 32, ROW_BYTES = 1536, SERVICES = 256, PORTS = 8 };

typedef struct reader {
    int fd;               /* -1: no reader here */
    int watch_fd;         /* -1: it has not said yet where it begins */
    pr_watch watch;
    pr_snap full_set;     /* 0: it is told changes */
    uint32_t told;        /* of the full set */
    uint64_t since;       /* the full set's revision: what is not newer is in it */
    char said[128], out[(ROWS + 2) * ROW_BYTES];
    size_t said_len, sent, used;
} reader;

static const pr_api *api;
static pr_ctx ctx;
static char epoch[32];
static reader readers[READERS];
static struct { char name[256]; uint32_t id; } services[SERVICES];

static pr_str text(const char *s) { pr_str t = {s, strlen(s)}; return t; }

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int32_t must(int32_t code, const char *call) {
    char words[512] = "no words";
    uint32_t need;
    if (code == PR_OK) return code;
    api->last_error(words, sizeof words, &need);
    fprintf(stderr, "feed: %s: %s\n", call, words);
    exit(1);
}

/* What a number of an endpoint stands for. Names of services, ports and hosts need no escapes in JSON. */
static const char *name(uint32_t kind, uint32_t number, char *buf, uint32_t cap) {
    uint32_t need;
    return api->text(ctx, kind, number, buf, cap, &need) == PR_OK ? buf : "";
}

/* What is sent -------------------------------------------------------------------------------------------------------------- */

static void put(reader *r, const char *line, int n) {
    /* A piece is at most ROWS rows and two lines beside them, each far below ROW_BYTES. */
    if (n < 0 || n >= ROW_BYTES || (size_t)n > sizeof r->out - r->used) abort();
    memcpy(r->out + r->used, line, (size_t)n);
    r->used += (size_t)n;
}

static void put_row(reader *r, const char *kind, const pr_endpoint *ep, uint64_t revision) {
    static const char *const states[] = {"not ready", "ready", "serving", "unconfirmed", "terminating"};
    static const char *const protocols[] = {"", "TCP", "UDP", "TCP+UDP"};
    char line[ROW_BYTES], service[256], port[256], host[256], ip[INET6_ADDRSTRLEN] = "";
    if (ep->family != 0) inet_ntop(ep->family == 6 ? AF_INET6 : AF_INET, ep->ip, ip, sizeof ip);
    put(r, line, snprintf(line, sizeof line,
        "{\"%s\":{\"id\":\"%016llx\",\"service\":\"%s\",\"port\":\"%s\",\"replica\":%u,\"host\":\"%s\",\"address\":\"%s\",\"number\":%u,"
        "\"count\":%u,\"protocol\":\"%s\",\"state\":\"%s\"},\"revision\":%llu}\n",
        kind, (unsigned long long)ep->id, name(PR_TEXT_SERVICE, ep->service, service, sizeof service),
        name(PR_TEXT_PORT, ep->name, port, sizeof port), ep->replica, name(PR_TEXT_HOST, ep->host, host, sizeof host), ip, ep->port,
        ep->count, ep->proto < 4 ? protocols[ep->proto] : "", ep->state < 5 ? states[ep->state] : "", (unsigned long long)revision));
}

static void put_bookmark(reader *r, uint64_t revision) {
    char line[ROW_BYTES];
    put(r, line, snprintf(line, sizeof line, "{\"bookmark\":%llu,\"epoch\":\"%s\"}\n", (unsigned long long)revision, epoch));
}

/* A piece of the full set: of one version, however long this reader takes. */
static void tell_full_set(reader *r) {
    pr_endpoint rows[ROWS];
    uint32_t n;
    must(api->snap_read(r->full_set, r->told, rows, ROWS, &n), "snap_read");
    for (uint32_t i = 0; i < n; i++) put_row(r, "upsert", &rows[i], rows[i].revision);
    r->told += n;
    if (n == 0) {
        must(api->snap_close(r->full_set), "snap_close");
        r->full_set = 0;
        put_bookmark(r, r->since);
    }
}

/* A piece of what changed. After PR_RESET a snapshot begins the full set; it is newer than the place from which the watch goes on. */
static void tell_changes(reader *r) {
    static const char reset[] = "{\"reset\":true}\n";
    pr_change changes[ROWS];
    uint32_t n, flags, count;
    must(api->watch_next(r->watch, changes, ROWS, &n, &flags), "watch_next");
    if (flags & PR_RESET) {
        must(api->snap_open(ctx, text(""), &r->full_set, &r->since, &count), "snap_open");
        r->told = 0;
        put(r, reset, sizeof reset - 1);
        return;
    }
    uint64_t newest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const pr_change *c = &changes[i];
        char line[ROW_BYTES], service[256];
        if (c->revision <= r->since) continue;
        newest = c->revision;
        if (c->kind == PR_CH_SERVICE_GONE)
            put(r, line, snprintf(line, sizeof line, "{\"gone\":\"%s\",\"revision\":%llu}\n",
                name(PR_TEXT_SERVICE, c->ep.service, service, sizeof service), (unsigned long long)c->revision));
        else
            put_row(r, c->kind == PR_CH_UPSERT ? "upsert" : "remove", &c->ep, c->revision);
    }
    /* With more to come this revision may not be whole yet. */
    if (newest != 0 && !(flags & PR_MORE)) put_bookmark(r, newest);
}

/* Readers ------------------------------------------------------------------------------------------------------------------- */

static void leave(reader *r) {
    if (r->full_set != 0) api->snap_close(r->full_set);
    if (r->watch_fd >= 0) api->watch_close(r->watch);
    close(r->fd);
    memset(r, 0, sizeof *r);
    r->fd = r->watch_fd = -1;
}

static void welcome(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (int i = 0; fd >= 0 && i < READERS; i++)
        if (readers[i].fd < 0) { readers[i].fd = fd; return; }
    if (fd >= 0) close(fd); /* as many as may be */
}

/* What a reader says: where it begins, once. Whatever comes later, and its end, end it. */
static void listen_to(reader *r) {
    char its_epoch[32] = "";
    unsigned long long since = 0;
    ssize_t n = recv(r->fd, r->said + r->said_len, sizeof r->said - 1 - r->said_len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || r->watch_fd >= 0) { leave(r); return; }
    r->said_len += (size_t)n;
    if (strchr(r->said, '\n') == NULL) {
        if (r->said_len == sizeof r->said - 1) leave(r);
        return;
    }
    int known = sscanf(r->said, "since %31s %llu", its_epoch, &since) == 2 && strcmp(its_epoch, epoch) == 0;
    /* Of another life, or new: PR_NEVER is ahead of every revision, so the watch begins with PR_RESET. */
    if (api->watch_open(ctx, text(""), known ? since : PR_NEVER, &r->watch, &r->watch_fd) != PR_OK) { r->watch_fd = -1; leave(r); }
}

static void send_to(reader *r) {
    ssize_t n = send(r->fd, r->out + r->sent, r->used - r->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) { leave(r); return; }
    if (n > 0) r->sent += (size_t)n;
    if (r->sent == r->used) r->sent = r->used = 0;
}

/* The scheduler's side ------------------------------------------------------------------------------------------------------ */

static int32_t find(uint64_t job, uint32_t replica, pr_alloc *id) {
    pr_want key = {.job = job, .replica = replica, .incarnation = PR_ANY};
    return api->grant_find(ctx, &key, id);
}

static int32_t start(uint64_t job, uint32_t replica, uint32_t profile, uint32_t host) {
    pr_want want = {.job = job, .replica = replica, .profile = profile, .host = host};
    pr_grant grant;
    pr_txn txn;
    uint16_t ports[PORTS];
    uint32_t need;
    uint64_t commit_no;
    must(api->txn_begin(ctx, 0, now_ms(), &txn), "txn_begin");
    int32_t code = api->reserve(txn, 0, &want, 1, &grant, ports, PORTS, &need);
    if (code != PR_OK) { api->abort_(txn); return code; }
    return api->commit(txn, &commit_no);
}

static int32_t report(uint64_t job, uint32_t replica, uint32_t state) {
    static uint64_t seq;
    pr_ready ready = {.seq = ++seq, .run = 1, .state = state};
    int32_t code = find(job, replica, &ready.id);
    return code != PR_OK ? code : api->report_ready(ctx, &ready, 1, NULL);
}

static int32_t stop(uint64_t job, uint32_t replica) {
    pr_alloc id;
    int32_t code = find(job, replica, &id);
    return code != PR_OK ? code : api->release_confirm(ctx, &id, 1, 0, now_ms(), NULL);
}

static int32_t add_host(uint32_t index, const char *host, const char *ip) {
    static uint64_t seq;
    pr_host h = {.size = sizeof h, .host = index, .name = text(host)};
    pr_addr address = {.family = 4};
    if (inet_pton(AF_INET, ip, address.ip) != 1) return 1;
    int32_t code = api->host_put(ctx, &h, 1);
    return code != PR_OK ? code : api->report_addr(ctx, index, ++seq, &address, 1);
}

static int32_t add_service(const char *service, char *port) {
    pr_port ports[PORTS];
    uint32_t n = 0;
    for (; port != NULL && n < PORTS; port = strtok(NULL, " "), n++) {
        memset(&ports[n], 0, sizeof ports[n]);
        ports[n].name = text(port);
        ports[n].proto = PR_TCP;
    }
    pr_profile p = {.size = sizeof p, .name = text(service), .service = text(service), .ports = ports, .n_ports = n, .port_size = sizeof ports[0]};
    for (int i = 0; i < SERVICES; i++)
        if (services[i].name[0] == 0) {
            int32_t code = api->profile_put(ctx, &p, &services[i].id);
            if (code == PR_OK) snprintf(services[i].name, sizeof services[i].name, "%s", service);
            return code;
        }
    return 1;
}

static int service_of(const char *service) {
    for (int i = 0; i < SERVICES; i++)
        if (strcmp(services[i].name, service) == 0) return i;
    return -1;
}

/* A code, or 1: it is not understood. */
static int32_t obey(char *line) {
    char word[16] = "", a[256] = "", b[256] = "", c[256] = "", d[256] = "";
    int at = 0, s = -1;
    sscanf(line, "%15s %255s %255s %255s %255s", word, a, b, c, d);
    uint64_t job = strtoull(a, NULL, 10);
    uint32_t replica = (uint32_t)strtoul(b, NULL, 10);
    if (strcmp(word, "host") == 0) return add_host((uint32_t)job, b, c);
    if (strcmp(word, "ready") == 0) return report(job, replica, PR_E_READY);
    if (strcmp(word, "unready") == 0) return report(job, replica, PR_E_NOT_READY);
    if (strcmp(word, "stop") == 0) return stop(job, replica);
    if (strcmp(word, "service") == 0 && sscanf(line, "service %255s %n", a, &at) == 1 && at > 0) return add_service(a, strtok(line + at, " "));
    if (strcmp(word, "start") == 0 && (s = service_of(c)) >= 0) return start(job, replica, services[s].id, (uint32_t)strtoul(d, NULL, 10));
    if (strcmp(word, "drop") == 0 && (s = service_of(a)) >= 0) {
        services[s].name[0] = 0;
        return api->profile_drop(ctx, services[s].id);
    }
    return 1;
}

static void answer(int32_t code) {
    char words[512];
    uint32_t need;
    if (code < 0 && api->last_error(words, sizeof words, &need) != PR_OK) strcpy(words, api->strerror_(code));
    printf("%s\n", code == PR_OK ? "ok" : code < 0 ? words : "not understood: no such command, service or address, or no room for more");
    fflush(stdout);
}

/* Takes what came on the standard input; 0: it ended. */
static int take_commands(void) {
    static char pending[4096];
    static size_t len;
    ssize_t n = read(STDIN_FILENO, pending + len, sizeof pending - 1 - len);
    if (n <= 0) return 0;
    len += (size_t)n;
    pending[len] = 0;
    char *line = pending, *end;
    while ((end = strchr(line, '\n')) != NULL) {
        *end = 0;
        if (strcmp(line, "quit") == 0) return 0;
        uint64_t next_ms;
        int32_t code = obey(line);
        must(api->pump(ctx, now_ms(), &next_ms), "pump"); /* once after each cycle: readers see it now */
        answer(code);
        line = end + 1;
    }
    len = (size_t)(pending + len - line);
    memmove(pending, line, len);
    return len < sizeof pending - 1;
}

static void load(const char *plugin) {
    void *so = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *) = NULL;
    if (so != NULL) *(void **)&get_api = dlsym(so, "pr_get_api");
    if (get_api == NULL) { fprintf(stderr, "feed: %s\n", dlerror()); exit(1); }
    pr_hostinfo host = {sizeof host, PR_ABI, PR_CAP_ENDPOINTS};
    uint32_t speaks = 0;
    if (get_api(&host, &api, &speaks) != PR_OK) {
        fprintf(stderr, "feed: %s: it speaks version %u; version %u is wanted, and endpoints\n", plugin, speaks, PR_ABI);
        exit(1);
    }
    pr_config config = {.size = sizeof config, .flags = PR_CFG_NO_RESTORE, .max_hosts = 1024, .max_allocs = 4096, .max_watches = READERS};
    must(api->create(&config, &ctx), "create");
    snprintf(epoch, sizeof epoch, "%lx-%llx", (long)getpid(), (unsigned long long)now_ms());
}

static int listen_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat earlier;
    if (strlen(path) >= sizeof at.sun_path) { fprintf(stderr, "feed: %s: too long for a socket\n", path); exit(1); }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    /* What an earlier life left; anything else that stands there is not ours to remove. */
    if (lstat(path, &earlier) == 0 && S_ISSOCK(earlier.st_mode)) unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, READERS) != 0) { perror(path); exit(1); }
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: feed PLUGIN.so SOCKET\n"); return 2; }
    load(argv[1]);
    for (int i = 0; i < READERS; i++) readers[i].fd = readers[i].watch_fd = -1;
    int listener = listen_at(argv[2]);
    /* One poll loop, as a scheduler has one: its own work, the socket, and for each reader either room to write or something unseen. */
    for (;;) {
        struct pollfd polled[2 + 2 * READERS] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
        int wait = -1;
        for (int i = 0; i < READERS; i++) {
            reader *r = &readers[i];
            struct pollfd *socket = &polled[2 + 2 * i], *watch = socket + 1;
            socket->fd = r->fd;
            socket->events = (short)(POLLIN | (r->used > 0 ? POLLOUT : 0));
            /* Nothing is read from the watch before the reader has taken what was read last: so it may lag, and nobody else. */
            watch->fd = r->used == 0 && r->full_set == 0 ? r->watch_fd : -1;
            watch->events = POLLIN;
            if (r->used == 0 && r->full_set != 0) wait = 0;
        }
        if (poll(polled, 2 + 2 * READERS, wait) < 0 && errno != EINTR) break;
        if ((polled[0].revents & (POLLIN | POLLHUP)) && !take_commands()) break;
        if (polled[1].revents & POLLIN) welcome(listener);
        for (int i = 0; i < READERS; i++) {
            reader *r = &readers[i];
            const struct pollfd *socket = &polled[2 + 2 * i], *watch = socket + 1;
            if (socket->fd < 0) continue;
            if (socket->revents & (POLLIN | POLLHUP | POLLERR)) listen_to(r);
            if (r->fd >= 0 && r->used == 0 && r->full_set != 0) tell_full_set(r);
            else if (r->fd >= 0 && r->used == 0 && watch->fd >= 0 && (watch->revents & POLLIN)) tell_changes(r);
            if (r->fd >= 0 && r->used > 0) send_to(r);
        }
    }
    unlink(argv[2]);
    must(api->destroy(ctx), "destroy");
    return 0;
}
