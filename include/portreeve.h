/* portreeve.h - the C contract of the port allocator. C99..C17, C++11..C++20; 64-bit Linux, one layout for all builds.
 * docs/abi.md tells how a scheduler uses it, call by call.
 *
 * Classes   [C] control: may allocate and block; never while a transaction is open (PR_EBUSY; only destroy then aborts it).
 *           [H] hot: no syscall, no log, no waiting; no allocation once warm. One thread at a time: a second caller
 *               gets PR_EBUSY at once. release_begin and release_confirm alone may come from any thread at any moment.
 *               A thread is warm after last_error(NULL, 0, &n); a context from create on, whose maxima say what is taken
 *               there; a host once it has had its greatest number of grants, of numbers that cool and of runs of free ones.
 *               Grants of 5 to 8 ports, of 9 to 16 and so on (also those that ended, while their slot keeps the numbers for
 *               PREFER), and services that have one fixed number cooling, count likewise: more at once than ever before take
 *               memory once. How many rests end at once, in which order, and which threads turn the cycles does not matter.
 *               txn_begin may take some for what R calls queued (waits, strangers, refused binds); a pump before it takes that
 *               instead.
 *           [R] report: any thread, bounded, may allocate; publishes what it and earlier H calls changed.
 *           [A] any thread; readers never wait for a writer.
 *           [S] supervision: each pr_sup by one thread at a time.
 * Memory    Inputs are copied before return. Outputs go into the caller's buffers. Nothing is handed over, so nothing is freed.
 *           NULL is allowed only for what says "or NULL", for a buffer of cap = 0 and for an array of n = 0.
 * Sizes     A struct that starts with `size` may grow; in an array the stride is the first element's size and all must be equal
 *           (else PR_EINVAL). Longer than ours: the tail must be zero (PR_E2BIG). Structs without `size` are frozen for ever;
 *           a new need is a new type and a new function. pr_port grows by pr_profile.port_size.
 * Buffers   (buf, cap, *need): need is always set to what a full answer takes; cap < need -> PR_ENOSPC, nothing written, nothing taken.
 *           Text ends with a NUL that need counts.
 * Batches   All n are tried, unless the call says all or none. rc (or NULL) gets one code per element; the return value is the
 *           first code that is not PR_OK, and last_error has the words of that one.
 * Refused   Any code but PR_OK: nothing changed and no output but `need` was written, unless the call says more.
 * Time      now_ms, at_ms: the caller's monotonic milliseconds, one line per context; a smaller value counts as the largest one seen.
 *           seq, revision: only greater counts. A report with an equal or smaller seq is PR_ESTALE and has no effect.
 * Words     Host set = words of 64 bits, host h is bit h % 64 of word h / 64 (Slurm's bitstr words on little endian).
 * Codes     Each call lists what it can return, one line per code; "each:" are codes of single elements. Beside those,
 *           every call may return PR_EINVAL for a NULL, misaligned or malformed argument, an unknown flag bit or a wrong size,
 *           and every call that takes an id
 *             PR_ESTALE   the id is 0, of another kind, or of something that has ended; nothing was touched
 *             PR_EFORK    the context was made by the parent of this process: make one here
 *             PR_EPOISON  a defect of ours was caught earlier; the context only answers stats, dump, last_error and destroy
 *           last_error has the words.
 */
#ifndef PORTREEVE_H
#define PORTREEVE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of the contract ------------------------------------------------------------------------------------------------- */

#define PR_ABI 1u                       /* The major number: both sides must speak the same. The minor one is the size of pr_api. */
#define PR_ANY 0xffffffffu              /* No number: any host, all steps, the newest incarnation, not about one port. */
#define PR_NEVER 0xffffffffffffffffull  /* No deadline. */

/* Codes: what a call answers. Frozen: none changes its number or meaning. */
enum {
    PR_OK       = 0,    /* Done. */
    PR_EINVAL   = -1,   /* An argument is malformed: a defect of the caller. */
    PR_ESTALE   = -2,   /* The id, mark or report is out of date; harmless. */
    PR_EBUSY    = -3,   /* Another call, or the open transaction, is in the way; never waited for. */
    PR_EAGAIN   = -4,   /* Not yet: ask again later, as the call says. */
    PR_ENOSPC   = -5,   /* The buffer is too small; `need` says what is enough. */
    PR_ENOPORT  = -6,   /* The host cannot give these ports; the reason says why. */
    PR_EEXIST   = -7,   /* The key has its numbers already. */
    PR_E2BIG    = -8,   /* A struct of a newer host uses a field that we do not know. */
    PR_EVERSION = -9,   /* Another major number, or a capability is lacking. */
    PR_EFORK    = -10,  /* The context belongs to the parent process. */
    PR_EPOISON  = -11,  /* A defect of ours was caught: destroy, create, restore. */
    PR_ENOMEM   = -12,  /* There is no memory; nothing was made. */
    PR_ESTATE   = -13,  /* Not in this state of the context, transaction or grant. */
    PR_ELIMIT   = -14,  /* More than a maximum of pr_config or of this page. */
    PR_EIO      = -15,  /* The operating system refused, such as a descriptor. */
    PR_ENOENT   = -16,  /* There is no such host, profile, service, network or key. */
    PR_ENOSYS   = -17   /* A call that is not built; no release returns it. */
};

/* Reasons: why a host does not fit. May grow; explain_all adds what has no entry to the last one. reason_ has the words. */
enum {
    PR_R_NONE         = 0,   /* None: it fits. */
    PR_R_HELD         = 1,   /* Another replica holds a fixed number. */
    PR_R_RELEASING    = 2,   /* Its holder was told to stop and has not ended. */
    PR_R_COOLING      = 3,   /* It rests after its last holder; retry_ms says how long. */
    PR_R_RESERVED     = 4,   /* Never given on this host. */
    PR_R_FOREIGN      = 5,   /* A process that is not ours listens there. */
    PR_R_NOT_IN_POOL  = 6,   /* Outside the ranges of this host, or of the ask. */
    PR_R_TOO_FEW      = 7,   /* Fewer numbers are free than "any" asks for. */
    PR_R_NO_BLOCK     = 8,   /* Enough numbers are free, but no block of them in a row. */
    PR_R_AWAITED      = 9,   /* Somebody has waited longer for this very number. */
    PR_R_DRAINED      = 10,  /* The host is PR_HOST_DRAINED. */
    PR_R_SUSPECT      = 11,  /* The host is PR_HOST_SUSPECT. */
    PR_R_LOST         = 12,  /* The host is PR_HOST_LOST. */
    PR_R_UNKNOWN_HOST = 13,  /* No host stands at this index. */
    PR_R_NO_ADDRESS   = 14,  /* The host has reported no address in the network of a port. */
    PR_R_NOT_REPORTED = 15   /* The host has not reported its addresses yet. */
};

/* Protocols, everywhere; 0 is PR_EINVAL. */
enum {
    PR_TCP     = 1,  /* The TCP number. */
    PR_UDP     = 2,  /* The UDP number. */
    PR_TCP_UDP = 3   /* One number on both sides. */
};

/* States of a host. Only UP takes new grants. */
enum {
    PR_HOST_UP      = 0,  /* In service. */
    PR_HOST_DRAINED = 1,  /* Takes nothing new; what runs there goes on and stays listed. */
    PR_HOST_SUSPECT = 2,  /* Not heard of; takes nothing new, its endpoints stay listed. */
    PR_HOST_LOST    = 3   /* Given up: its endpoints are out, its numbers stay held. */
};

/* States of a number. */
enum {
    PR_P_FREE      = 0,  /* For anybody. */
    PR_P_HELD      = 1,  /* By a grant. */
    PR_P_RELEASING = 2,  /* By a grant whose stop was ordered. */
    PR_P_COOLING   = 3,  /* Rests, so that clients of the last holder do not meet a stranger. */
    PR_P_RESERVED  = 4,  /* Never given on this host. */
    PR_P_FOREIGN   = 5   /* A process that is not ours listens there. */
};

/* States of an endpoint. */
enum {
    PR_E_NOT_READY   = 0,  /* Not to be used (yet). */
    PR_E_READY       = 1,  /* Its probe succeeds: clients go there. */
    PR_E_SERVING     = 2,  /* Said not to be ready, but still serves what it has begun. */
    PR_E_UNCONFIRMED = 3,  /* Was ready before the scheduler's restart, or its host is suspect; listed. */
    PR_E_TERMINATING = 4   /* Its stop was ordered. */
};

/* Kinds of a pr_change. */
enum {
    PR_CH_UPSERT       = 1,  /* An endpoint is new or differs. */
    PR_CH_REMOVE       = 2,  /* An endpoint is gone. */
    PR_CH_SERVICE_GONE = 3   /* A whole service is. */
};

/* What a number that text() is asked about names. */
enum {
    PR_TEXT_SERVICE = 1,  /* pr_endpoint.service */
    PR_TEXT_PORT    = 2,  /* pr_endpoint.name */
    PR_TEXT_HOST    = 3   /* the index of a host */
};

/* Capabilities, in caps and want_caps: an unknown wanted bit is PR_EVERSION. */
#define PR_CAP_ENDPOINTS 1ull     /* resolve, snapshots and watches. */
#define PR_CAP_SUPERVISION 2ull   /* the sup_ calls. */

/* Flags. A bit that is not here is PR_EINVAL. */
#define PR_CFG_NO_RESTORE 1u      /* pr_config.flags: nothing runs yet; skip the restore phase. */
#define PR_HOST_LOWEST 1u         /* pr_host.flags: draw the lowest free number instead of the next one. */
#define PR_HOST_RANDOM 2u         /* pr_host.flags: begin at a random one, from pr_config.seed, then the next free. */
#define PR_PORT_UNPUBLISHED 1u    /* pr_port.flags: given and told to the job, listed nowhere. */
#define PR_WANT_PREFER 1u         /* pr_want.flags: the former numbers of this replica first, if they cool for it; never a reason to refuse. */
#define PR_TXN_WHATIF 1u          /* txn_begin: never committable; the only kind in which give is allowed. */
#define PR_RESERVE_ALL 1u         /* reserve: all n wants or none (a gang over hosts); PR_EEXIST is no failure here. */
#define PR_RESERVE_SAME 2u        /* reserve, with ALL: each "any" number or block equal on all hosts. */
#define PR_REL_NO_COOL 1u         /* release_confirm: nothing ever listened there, free at once. */
#define PR_REMOVE_FORCE 1u        /* host_remove: although numbers are held. */
#define PR_RESOLVE_ALL 1u         /* resolve: also NOT_READY, SERVING, TERMINATING; READY and UNCONFIRMED are always listed. */
#define PR_REC_CONFLICT 1u        /* pr_rec.flags, out: shares a number with another record. */
#define PR_REC_TCP 2u             /* pr_rec.flags, of PR_P_COOLING: any numbers, of the TCP side, whatever ports the profile has. */
#define PR_REC_UDP 4u             /* pr_rec.flags, of PR_P_COOLING: the same of the UDP side. Both: of both sides. */
#define PR_MORE 1u                /* flags of wait_next, watch_next: call again; the fd stays readable. */
#define PR_RESET 2u               /* flags of watch_next: `since` is older than what is kept; read a snapshot, then go on. */

/* Ids: kind, slot and generation. 0 is none; never reused within a process. */
typedef uint64_t pr_ctx, pr_txn, pr_alloc, pr_snap, pr_watch, pr_sup;

/* The structs: no padding, no bool, enum or bit field. What grows begins with `size` and is appended to ---------------------- */

/* A text. UTF-8, no NUL needed. n = 0: absent. */
typedef struct pr_str {
    const char *p;
    uint64_t n;             /* bytes */
} pr_str;

/* Numbers from lo to hi, both included, 1..65535. */
typedef struct pr_range {
    uint16_t lo, hi;
} pr_range;

/* Who asks for the table. */
typedef struct pr_hostinfo {
    uint32_t size;
    uint32_t abi;           /* PR_ABI of the header that the host was built with */
    uint64_t want_caps;     /* PR_CAP_*: what the host cannot do without */
} pr_hostinfo;

/* What create takes. The memory for class H is taken there. A maximum of 0 is the default; above its bound: PR_ELIMIT. */
typedef struct pr_config {
    uint32_t size;
    uint32_t flags;         /* PR_CFG_* */
    uint32_t max_hosts;     /* indices below it; 0: 16,384; at most 2^20 */
    uint32_t max_allocs;    /* grants at once; 0: 131,072; at most 2^24 */
    uint32_t max_profiles;  /* at once; 0: 4,096; at most 2^20 */
    uint32_t max_waits;     /* replicas that wait; 0: 4,096; at most 2^24 */
    uint32_t max_watches;   /* 0: 1,024; at most 2^20 */
    uint32_t max_ports;     /* numbers that one transaction takes; 0: 65,536; at most 2^24 */
    uint32_t cool_ms;       /* how long a number rests after its holder; 0: 60,000 */
    uint32_t foreign_rest_ms; /* how long a refused bind counts as foreign; 0: 60,000 */
    uint64_t seed;          /* of PR_HOST_RANDOM */
    pr_str env_prefix;      /* of the variables; absent: PORTREEVE_; else [A-Za-z_][A-Za-z0-9_]*, at most 64 */
    void *ud;               /* handed to log */
    /* Or NULL. Called by any thread that is in a C or R call, under no lock; must not unwind. level as syslog: 3 error, 4 warning,
     * 6 information; msg has no NUL and is valid during the call. */
    void (*log)(void *ud, int32_t level, int32_t code, const char *msg, uint64_t n);
} pr_config;

/* A host. The name is the host, the index is where it stands now. Ranges: NULL is the default; at most 1,024 each. */
typedef struct pr_host {
    uint32_t size;
    uint32_t flags;         /* PR_HOST_LOWEST or PR_HOST_RANDOM; 0: the number after the last one drawn */
    uint32_t host;          /* the index, below max_hosts: the bit of host sets */
    uint32_t state;         /* PR_HOST_UP, _DRAINED, _SUSPECT, _LOST */
    pr_str name;
    const pr_range *dynamic;  /* what "any" draws from; NULL: 20000-32767 */
    const pr_range *fixed;    /* what may be asked for by number; NULL: 1024-65535 */
    const pr_range *reserved; /* never given; NULL: none */
    uint32_t n_dynamic, n_fixed, n_reserved;
    uint32_t cool_ms;       /* 0: the context's */
} pr_host;

/* A network that ports may be served in: hosts are reached there by their address inside the prefix. */
typedef struct pr_network {
    uint32_t size;
    uint32_t flags;         /* 0 */
    pr_str name;
    uint8_t ip[16];         /* v4 in ip[0..4], rest zero */
    uint32_t family;        /* 4 or 6 */
    uint32_t prefix;        /* how many bits of ip count, up to 32 or 128; those behind are 0 */
} pr_network;

/* A port of a profile. Grows by pr_profile.port_size. */
typedef struct pr_port {
    pr_str name;            /* "http"; unique in its profile */
    pr_str env;             /* one more variable with its number; absent: none */
    pr_str network;         /* of network_put: only hosts with an address there fit; absent: the host's usual address */
    const pr_range *within; /* "any" only from these; or NULL */
    uint32_t n_within;
    uint16_t fixed;         /* this very number; 0: any */
    uint16_t count;         /* above 1: a block of consecutive numbers, then fixed must be 0; 0 is 1 */
    uint32_t proto;         /* PR_TCP, PR_UDP, PR_TCP_UDP */
    uint32_t flags;         /* PR_PORT_* */
} pr_port;

/* The ports of a kind of job. */
typedef struct pr_profile {
    uint32_t size;
    uint32_t flags;         /* 0 */
    pr_str name;            /* for the scheduler's own log; may be absent */
    pr_str service;         /* where its replicas are listed: "web.alice" */
    const pr_port *ports;   /* at most 256 numbers and 1,024 ranges in all */
    uint32_t n_ports;
    uint32_t port_size;     /* sizeof(pr_port): the stride of ports */
} pr_profile;

/* A question about hosts. */
typedef struct pr_need {
    uint32_t profile;
    uint32_t replicas;      /* at least so many at once on one host; 0 is 1 */
    uint64_t at_ms;         /* cooling that ends by then counts as free; 0: now */
} pr_need;

/* One replica on one host. Its key is job, step, replica and incarnation. */
typedef struct pr_want {
    uint64_t job;
    uint32_t step;
    uint32_t replica;
    uint32_t incarnation;   /* a higher one is a new grant; the older stays held until it is released */
    uint32_t profile;
    uint32_t host;          /* the index; of wait_put also PR_ANY */
    uint32_t flags;         /* PR_WANT_* */
} pr_want;

/* The answer to a want. Its numbers are ports[port_off .. port_off + n_ports]: every one, in the order of the profile, a block
 * ascending. */
typedef struct pr_grant {
    pr_alloc id;            /* 0 if refused */
    int32_t rc;             /* the code of this want */
    uint32_t reason;        /* PR_R_*: of PR_ENOPORT */
    uint32_t host;          /* where its host stands now */
    uint32_t n_ports;
    uint32_t port_off;
    uint32_t retry_ms;      /* of PR_R_COOLING: after so long it is worth another try */
} pr_grant;

/* A grant, or numbers that rest, as a record: what a scheduler restores from and exports to. */
typedef struct pr_rec {
    pr_want who;            /* its key, profile and host */
    pr_alloc id;            /* out only: ids do not survive a restart */
    uint64_t seq;           /* of the last report_ready */
    uint32_t n_ports;       /* as many as the profile has, in its order; any with PR_REC_TCP, PR_REC_UDP */
    uint32_t port_off;      /* as in pr_grant */
    uint32_t state;         /* PR_P_HELD, PR_P_RELEASING or PR_P_COOLING */
    uint32_t cool_left_ms;  /* of PR_P_COOLING */
    uint32_t ready;         /* PR_E_* of the last report_ready */
    uint32_t run;           /* of the last report_ready */
    uint32_t restarts;      /* of the last report_ready */
    uint32_t flags;         /* PR_REC_* */
} pr_rec;

/* An address of a host. The lowest pref wins, then the lowest scope, then the earlier. */
typedef struct pr_addr {
    uint8_t ip[16];         /* v4 in ip[0..4], rest zero */
    uint32_t family;        /* 4 or 6 */
    uint32_t scope;         /* 0 global, 1 site, 2 link, 3 host */
    uint32_t pref;
    uint32_t flags;         /* 0 */
} pr_addr;

/* Numbers at which a process that is not ours listens. */
typedef struct pr_foreign {
    uint16_t lo, hi;        /* both included */
    uint32_t proto;
    uint32_t pid;           /* 0: unknown */
    uint32_t flags;         /* 0 */
    char comm[16];          /* its name, NUL-padded */
} pr_foreign;

/* Whether a replica is ready. Reports of one id are ordered by (run, seq). */
typedef struct pr_ready {
    pr_alloc id;            /* the incarnation is in it */
    uint64_t seq;
    uint32_t run;           /* counts the starts of its process */
    uint32_t state;         /* PR_E_* */
    uint32_t reason;        /* the reporter's own; not read */
    uint32_t restarts;      /* kept for grant_get */
} pr_ready;

/* One cause why a host does not fit. What a cause has not is 0. */
typedef struct pr_why {
    pr_alloc holder;        /* of HELD and RELEASING: apply your own rights before you print it */
    uint32_t reason;        /* PR_R_* */
    uint32_t item;          /* index in pr_profile.ports, or PR_ANY: about the host */
    uint32_t proto;         /* 0: about the host */
    uint32_t have;          /* of TOO_FEW: numbers that are free */
    uint32_t want;          /* of TOO_FEW, and the block of NO_BLOCK: numbers that are asked for */
    uint32_t retry_ms;      /* of COOLING */
    uint32_t pid;           /* of FOREIGN, if known */
    uint16_t port;          /* the number; 0: about none */
    uint16_t zero;
} pr_why;

/* Consecutive numbers of a host that are not free, alike in all that follows. */
typedef struct pr_held {
    pr_alloc id;            /* of HELD and RELEASING, else 0 */
    uint16_t lo, hi;        /* both included */
    uint32_t proto;
    uint32_t state;         /* PR_P_* */
    uint32_t left_ms;       /* of COOLING */
    uint32_t replica;       /* of HELD and RELEASING, else PR_ANY */
    uint32_t pid;           /* of FOREIGN; 0: unknown */
} pr_held;

/* Where one published port of one replica is reached. */
typedef struct pr_endpoint {
    pr_alloc id;
    uint64_t revision;      /* when it last changed */
    uint8_t ip[16];         /* v4 in ip[0..4], rest zero */
    uint16_t port;          /* the first number of a block */
    uint16_t count;         /* how many follow each other */
    uint32_t family;        /* 4 or 6; 0: no address is known */
    uint32_t proto;
    uint32_t state;         /* PR_E_* */
    uint32_t service;       /* text(PR_TEXT_SERVICE) */
    uint32_t name;          /* text(PR_TEXT_PORT) */
    uint32_t replica;
    uint32_t host;          /* the index where its host stands now */
} pr_endpoint;

/* A change of an endpoint. */
typedef struct pr_change {
    pr_endpoint ep;
    uint64_t revision;
    uint32_t kind;          /* PR_CH_* */
    uint32_t flags;         /* 0 */
} pr_change;

/* Counters. In: size = room; out: size = ours, the smaller of both is filled. */
typedef struct pr_stats {
    uint32_t size;
    uint32_t flags;         /* 0 */
    uint64_t hosts;
    uint64_t allocs;        /* grants: held and releasing */
    uint64_t waits;         /* replicas that wait */
    uint64_t ports_used;    /* numbers in grants, tentative ones too */
    uint64_t ports_total;   /* numbers of the dynamic ranges */
    uint64_t ports_cooling;
    uint64_t commits;       /* that changed something */
    uint64_t aborts;        /* of transactions, not of what-ifs */
    uint64_t busy;          /* calls that were answered PR_EBUSY */
    uint64_t stale;         /* calls that were answered PR_ESTALE on an id of this context */
    uint64_t poisoned;      /* 0 or 1 */
    uint64_t snaps;         /* open ones */
    uint64_t watches;       /* open ones */
    uint64_t watch_resets;  /* how often a watch was told PR_RESET */
    uint64_t queued;        /* what the next txn_begin or pump applies */
    uint64_t bytes;         /* memory, about: what create took for its maxima, hosts with their numbers, grants */
} pr_stats;

/* Supervision: what a worker tells a machine and what it is told. Numbers from 1 in the order of the supervision page, appended to.
 * Commands and events of one instant are handed over in this order: START, STOP, USER_RESTART, ADOPT, PRE_EXEC_STARTED; SPAWNED, SPAWN_FAILED,
 * PORT_CONFLICT; EXITED; GROUP_EMPTY; PROBE_RESULT; then sup_deadline. Sample the clock once per wake-up. */

/* Kinds of a pr_sup_event, with the members that each reads beside size, kind and flags; the others are not read. */
enum {
    PR_SE_START            = 1,   /* Begin with the first run. */
    PR_SE_STOP             = 2,   /* End it: ms = grace from signal to kill, 0: the profile's. Again: the earlier kill wins. */
    PR_SE_USER_RESTART     = 3,   /* The user wants a fresh run; not charged. */
    PR_SE_SPAWNED          = 4,   /* run: its process exists. */
    PR_SE_SPAWN_FAILED     = 5,   /* run: no process; code = errno, or with PR_SX_PRE_EXEC how pre_exec ended. */
    PR_SE_PORT_CONFLICT    = 6,   /* run: a stranger has a granted port; code = port, flags = PR_TCP, PR_UDP or both. In place of SPAWNED or EXITED. */
    PR_SE_EXITED           = 7,   /* run: its main process ended; code and flags say how. */
    PR_SE_GROUP_EMPTY      = 8,   /* run: no process of it is left. */
    PR_SE_PROBE_RESULT     = 9,   /* run, probe_kind, probe: that probe ended; result = PR_SO_*. */
    PR_SE_ADOPT            = 10,  /* A new worker took over, after sup_load: probes in flight are forgotten. ms = wait before each next probe,
                                   * 0: drawn from the seed. */
    PR_SE_PRE_EXEC_STARTED = 11   /* run: its pre_exec command runs; a stop signals it. */
};

/* Kinds of a pr_sup_effect, with the members that each fills beside size, kind and run; the others are 0. */
enum {
    PR_SF_SPAWN        = 1,  /* Start the process; answer SPAWNED, SPAWN_FAILED or PORT_CONFLICT. */
    PR_SF_TERM         = 2,  /* Send the stop signal and SIGCONT to the main process, or to the running pre_exec. */
    PR_SF_KILL_GROUP   = 3,  /* Kill every process of the run; answer GROUP_EMPTY when none is left, at once if there never was one. */
    PR_SF_PROBE        = 4,  /* Run one probe, of probe_kind, number, within ms; answer PROBE_RESULT. */
    PR_SF_CANCEL_PROBE = 5,  /* Give the probe up, of probe_kind, number. */
    PR_SF_REPORT       = 6   /* Tell the scheduler: report, and what it says below; run = the newest one then. */
};

/* Kinds of probes. */
enum {
    PR_SK_STARTUP   = 1,  /* Must succeed once after each start. */
    PR_SK_LIVENESS  = 2,  /* Whether to restart. */
    PR_SK_READINESS = 3   /* Whether clients may be sent there. */
};

/* Results of a probe; `portreeve probe` exits with 0, 1 and 75 for OK, FAIL and INCONCLUSIVE. */
enum {
    PR_SO_OK           = 1,  /* It succeeded. */
    PR_SO_FAIL         = 2,  /* It failed. */
    PR_SO_TIMEOUT      = 3,  /* It took too long. INCONCLUSIVE if this wake-up came later than planned by more than its timeout, or 5 s. */
    PR_SO_INCONCLUSIVE = 4   /* It says nothing about the service: no process to be had, a stall of our own. */
};

/* Reports: changes worth telling, none in the steady state. SUCCEEDED, FAILED, STOPPED, GAVEUP and PORT_CONFLICT are the last one. */
enum {
    PR_SR_READY         = 1,  /* Clients may be sent there. */
    PR_SR_NOTREADY      = 2,  /* Not any more: reason. */
    PR_SR_BACKOFF       = 3,  /* The run ended: reason. The next begins ms after the exit. */
    PR_SR_RESTARTED     = 4,  /* A run replaced an earlier one: reason; count = automatic restarts so far, number = the user's so far. */
    PR_SR_GAVEUP        = 5,  /* No further restart: reason; count = restarts it had. ms = 0: it ends; else it is to be placed anew after
                               * a rest of ms, doubling, at most number times. */
    PR_SR_SUCCEEDED     = 6,  /* It ended in success and is not to be restarted. */
    PR_SR_FAILED        = 7,  /* It failed and is not to be restarted: reason. */
    PR_SR_STOPPED       = 8,  /* It was told to end. */
    PR_SR_STUCK         = 9,  /* Processes outlive the kill: keep the ports, wait for EXITED and GROUP_EMPTY. */
    PR_SR_PORT_CONFLICT = 10  /* A stranger has a port: code = port, flags = protocol. Nothing was charged; ask for other ports. */
};

/* Why, in pr_sup_effect.reason; 0 where a report has none. */
enum {
    PR_SW_EXIT         = 1,   /* It exited: code = exit code. */
    PR_SW_SIGNAL       = 2,   /* A signal that nobody here sent: code = signal, flags = PR_SX_SIGNAL, CORE, OOM. */
    PR_SW_UNKNOWN      = 3,   /* It ended, nobody knows how: flags = PR_SX_UNKNOWN. */
    PR_SW_START_FAILED = 4,   /* The system refused: code = errno. */
    PR_SW_PRE_EXEC     = 5,   /* pre_exec failed: code and flags as of EXITED. */
    PR_SW_STARTUP      = 6,   /* The startup probe failed: code = how often in a row. */
    PR_SW_LIVENESS     = 7,   /* The liveness probe failed: likewise. */
    PR_SW_PROBE        = 8,   /* The readiness probe failed: likewise. */
    PR_SW_USER         = 9,   /* The user asked for a restart. */
    PR_SW_STOP         = 10,  /* It was told to end. */
    PR_SW_STALE_RECORD = 11   /* The record was too old to be believed. */
};

/* Flags of a pr_sup_event and a pr_sup_effect. Without one of the first four, code is an exit code. */
#define PR_SX_SIGNAL 1u           /* code is a signal, 1 to 127. */
#define PR_SX_CORE 2u             /* with SIGNAL: a core was dumped. */
#define PR_SX_OOM 4u              /* with SIGNAL: the kernel ran out of memory for it. */
#define PR_SX_UNKNOWN 8u          /* alone: the status is lost. */
#define PR_SX_PRE_EXEC 16u        /* SPAWN_FAILED: it is pre_exec that ended so. */
#define PR_SX_EXACT 32u           /* STOP, ADOPT: ms counts although it is 0. */
#define PR_SX_STALE 64u           /* ADOPT: the state is older than the host grace (90 s); readiness must be proved again. */

/* What happened. */
typedef struct pr_sup_event {
    uint32_t size;
    uint32_t kind;          /* PR_SE_* */
    uint32_t run;           /* which start, as PR_SF_SPAWN numbered it; another than the newest: no effect */
    uint32_t probe_kind;    /* PR_SK_* */
    uint32_t probe;         /* number of the probe; another than the one in flight: no effect */
    uint32_t result;        /* PR_SO_* */
    int32_t code;           /* exit code 0..255, signal 1..127, errno 1..4095 or port 1..65535 */
    uint32_t flags;         /* PR_SX_* that the kind allows; of PORT_CONFLICT the protocol */
    uint64_t ms;            /* grace of STOP, spread of ADOPT */
} pr_sup_event;

/* What to do. In: size = room; out: size = ours, min of both filled. */
typedef struct pr_sup_effect {
    uint32_t size;
    uint32_t kind;          /* PR_SF_* */
    uint32_t run;           /* which start, from 1; of a report the newest one when it was said */
    uint32_t probe_kind;    /* PR_SK_* */
    uint32_t number;        /* of the probe, from 1 in each run; of RESTARTED and GAVEUP as said there */
    uint32_t report;        /* PR_SR_* */
    uint32_t reason;        /* PR_SW_* */
    int32_t code;           /* as the reason or report says */
    uint32_t count;         /* restarts, of RESTARTED and GAVEUP */
    uint32_t flags;         /* PR_SX_*; of PORT_CONFLICT the protocol */
    uint64_t ms;            /* timeout of a probe, delay of BACKOFF, rest of GAVEUP */
} pr_sup_effect;

/* The table: static storage, the same for every caller. Appended to, never reordered; ask PR_HAS before you call what came after
 * your first version. */
typedef struct pr_api {
  uint32_t size;            /* of this table: the minor number */
  uint32_t abi;             /* PR_ABI */
  uint64_t caps;            /* PR_CAP_*: what this plugin can do */

  /* C: control --------------------------------------------------------------------------------------------------------------- */

  /* [C] Makes a context; it begins in the restore phase (unless PR_CFG_NO_RESTORE). Its id goes to *ctx; end it with destroy.
   * log and ud are kept until destroy has returned, and every call of another thread that was in this context then.
   *   PR_E2BIG    config uses a field that we do not know
   *   PR_ELIMIT   a maximum is too large, or 256 contexts exist
   *   PR_ENOMEM   nothing was made; whichever block of memory the system refuses, if the thread is warm
   *   PR_EBUSY    another thread makes or ends a context */
  int32_t (*create)(const pr_config *config, pr_ctx *ctx);

  /* [C] Ends a context, also a poisoned one: an open transaction is aborted, all its ids become stale, all its fds are readable
   * once, then closed. Calls that other threads are in just now end as they would have, or as on a stale id.
   *   PR_EBUSY    another thread makes or ends a context */
  int32_t (*destroy)(pr_ctx ctx);

  /* [C] Adds hosts or changes known ones, all n or none. The name is the host, the index is where it stands: a known name at
   * another index moves with its holders; changed ranges do not touch holders. Two of the n may change places.
   *   PR_EBUSY    a transaction is open, or an index is still used by another name with holders
   *   PR_ELIMIT   index or n beyond max_hosts, or too many ranges
   *   PR_E2BIG    a host uses a field that we do not know */
  int32_t (*host_put)(pr_ctx ctx, const pr_host *hosts, uint32_t n);

  /* [C] Removes a host. With PR_REMOVE_FORCE its grants end: their ids are stale.
   *   PR_ENOENT   no such host
   *   PR_EBUSY    numbers are held, or a transaction is open */
  int32_t (*host_remove)(pr_ctx ctx, uint32_t host, uint32_t flags);

  /* [C] Names networks that pr_port.network may choose, all n or none; a known name stands for the new prefix from here on, also for
   * what is held. In each network a host has the best address of its list that lies in it; networks may overlap. A name is 1 to 63
   * of a-z, 0-9 and -; a name twice in one call, an address of another family, or bits of it behind the prefix are PR_EINVAL.
   *   PR_EBUSY    a transaction is open
   *   PR_E2BIG    a network uses a field that we do not know
   *   PR_ELIMIT   more than 64 networks of a context */
  int32_t (*network_put)(pr_ctx ctx, const pr_network *networks, uint32_t n);

  /* [C] Makes the ports of a kind of job known; *id is what pr_want and pr_need name, not used again. The service is known from
   * here on.
   *   PR_EBUSY    a transaction is open
   *   PR_ELIMIT   more than max_profiles, 256 numbers or 1,024 ranges
   *   PR_E2BIG    the profile or a port uses a field that we do not know
   *   PR_ENOENT   a port names an unknown network */
  int32_t (*profile_put)(pr_ctx ctx, const pr_profile *profile, uint32_t *id);

  /* [C] Takes no new asks for a profile; kept until its last grant and wait are gone; its number is not used again.
   * When the last profile and the last grant of a service have ended, the service is unknown again.
   *   PR_ENOENT   no such profile
   *   PR_EBUSY    a transaction is open */
  int32_t (*profile_drop)(pr_ctx ctx, uint32_t id);

  /* [C] Brings back what the scheduler's own records say is held, only before restore_end. Each of grants (or NULL) gets the new
   * id and its own code. Records that share a number are both kept, flagged and counted. Numbers outside today's pool stay held
   * until released. A record of PR_P_COOLING has no id (0): its numbers rest for cool_left_ms from restore_end on, and only its
   * service (profile PR_ANY: nobody) may have them before; if two name a number, the one that rests longer counts, and what is held
   * does not rest. What was READY is UNCONFIRMED until it reports.
   *   PR_ESTATE   the restore phase is over
   *   PR_ELIMIT   n beyond max_allocs, or n_ports beyond 256 times that
   *   PR_EBUSY    a transaction is open
   * each:
   *   PR_ENOENT   unknown host or profile
   *   PR_EEXIST   the key is known
   *   PR_EINVAL   the record contradicts itself or its profile
   *   PR_ELIMIT   max_allocs grants are known; one that ended counts until the next txn_begin or pump */
  int32_t (*restore_put)(pr_ctx ctx, const pr_rec *records, uint32_t n, const uint16_t *ports, uint32_t n_ports, pr_grant *grants);

  /* [C] Ends the restore phase, also when nothing was restored; *conflicts = records that share a number. flags 0.
   *   PR_ESTATE   it has ended already
   *   PR_EBUSY    a transaction is open */
  int32_t (*restore_end)(pr_ctx ctx, uint32_t flags, uint64_t now_ms, uint32_t *conflicts);

  /* [C] Reads what restore_put takes: every grant by slot, then what cools by host, side and number. In pieces: *cursor 0 begins,
   * *n = 0 ends; port_off counts in the ports of the same call, and room for 256 of them is always enough for one record. Between
   * pieces anything may happen: what stays is told once. Who held what cools is not known: its records have PR_REC_TCP or PR_REC_UDP,
   * job 0, step and replica PR_ANY, id 0, and a profile of its service (PR_ANY if none is left). Strangers, states of hosts,
   * addresses and waits are not in it; they are told anew.
   *   PR_EAGAIN   before restore_end
   *   PR_ENOSPC   not even one record fits
   *   PR_EBUSY    a transaction is open */
  int32_t (*export_)(pr_ctx ctx, uint64_t *cursor, pr_rec *records, uint32_t cap, uint16_t *ports, uint32_t ports_cap,
                     uint32_t *n, uint32_t *n_ports);

  /* H: inside a transaction -------------------------------------------------------------------------------------------------- */

  /* [H] Opens the context's one transaction: applies queued releases and reports, ends cooling that is due, pins the view.
   * A what-if (PR_TXN_WHATIF) tries on copies of the hosts that it touches; nobody sees any of it, and abort_ ends it. The memory
   * of the copies is kept: it is warm for a host that one of the last what-ifs touched (1,024 hosts, or as many as one of them did),
   * once that has as many grants and runs as ever.
   *   PR_EBUSY    one is open, or another thread is in an H call or in pump */
  int32_t (*txn_begin)(pr_ctx ctx, uint32_t flags, uint64_t now_ms, pr_txn *txn);

  /* [H] Which hosts can take the need. Returns how many hosts are set in out, or a code. Earlier reservations of this transaction
   * count. cand or NULL = all hosts; may be out. max_replicas: NULL, or 64 * nwords entries: how many replicas fit on each host set
   * in out (exact without blocks, else a lower bound of at least 1; at most 65,535, and 256 if ports of one protocol may take different
   * numbers, as PR_TCP beside PR_TCP_UDP), 0 for the others. Bits past the last host are ignored.
   *   PR_ENOENT   unknown profile
   *   PR_ELIMIT   nwords reaches beyond index 2^20
   *   PR_EBUSY    another thread is in an H call or in pump */
  int64_t (*feasible)(pr_txn txn, const pr_need *need, const uint64_t *cand, uint64_t *out, uint16_t *max_replicas, uint32_t nwords);

  /* [H] Why a host does not fit, one pr_why per cause; *count 0: it fits. Cost: for each number that is held a look at every grant
   * of the host.
   *   PR_ENOENT   unknown profile
   *   PR_ENOSPC   cap < *count
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*explain)(pr_txn txn, const pr_need *need, uint32_t host, pr_why *causes, uint32_t cap, uint32_t *count);

  /* [H] Counts the first reason of each host that does not fit: hosts_by_reason[PR_R_*], 0 where nothing was counted. cand or NULL
   * = all hosts; bits past the last host are ignored.
   *   PR_ENOENT   unknown profile
   *   PR_ELIMIT   nwords reaches beyond index 2^20, or n_reasons is more than 4,096
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*explain_all)(pr_txn txn, const pr_need *need, const uint64_t *cand, uint32_t nwords, uint32_t *hosts_by_reason,
                         uint32_t n_reasons);

  /* [H] Takes numbers at once as tentative: free for nobody, seen by no reader, until commit, rollback or abort_. Each of the n
   * grants gets its own rc, and the call returns the first that is not PR_OK (with PR_RESERVE_ALL: the first failure; what was
   * given back has PR_EAGAIN). PR_RESERVE_SAME: all want one profile on hosts of their own; a key that has numbers is a failure
   * here (PR_EEXIST), unless all n have them and they are the same.
   * The whole call, nothing taken:
   *   PR_EAGAIN   before restore_end
   *   PR_ENOSPC   ports_cap < *need_ports
   *   PR_ELIMIT   n beyond max_allocs, or more numbers than max_ports
   *   PR_EBUSY    another thread is in an H call or in pump
   * each:
   *   PR_ENOPORT  it does not fit, reason says why; with SAME all of them, if each fits but they have nothing in common
   *   PR_EEXIST   same key again, with its id and numbers
   *   PR_ESTALE   a higher incarnation is known
   *   PR_ENOENT   unknown profile, or host (reason UNKNOWN_HOST)
   *   PR_EAGAIN   its older grant is being freed: ask in the next transaction; or another of the gang was refused
   *   PR_EINVAL   unknown flag bit; with SAME: another profile or the same host again
   *   PR_ELIMIT   max_allocs grants are known */
  int32_t (*reserve)(pr_txn txn, uint32_t flags, const pr_want *wants, uint32_t n, pr_grant *grants, uint16_t *ports,
                     uint32_t ports_cap, uint32_t *need_ports);

  /* [H] In a what-if: as if these ended now and cooled from now, until a rollback to before it. Their keys stay theirs: reserve
   * answers such a key PR_EAGAIN, a higher incarnation of it is a new grant.
   *   PR_ESTATE   not a what-if
   *   PR_ELIMIT   n beyond max_allocs
   *   PR_EBUSY    another thread is in an H call or in pump
   * each:
   *   PR_ESTALE   ended, or given already
   *   PR_ESTATE   not committed yet */
  int32_t (*give)(pr_txn txn, const pr_alloc *ids, uint32_t n, int32_t *rc);

  /* [H] A point to come back to.
   *   PR_ELIMIT   2^16 marks are set
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*mark)(pr_txn txn, uint32_t *mark);

  /* [H] Gives back what was reserved since the mark, without a trace; the ids of those grants become stale. Later marks become
   * stale, this one stays.
   *   PR_ESTALE   no such mark
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*rollback)(pr_txn txn, uint32_t mark);

  /* [H] Makes the reservations held and ends the transaction; readers see them after the next R call. *commit_no: +1 per commit
   * that changed something. Sync your own record of key, host and numbers before this call.
   *   PR_ESTATE   a what-if
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*commit)(pr_txn txn, uint64_t *commit_no);

  /* [H] Ends the transaction without a trace; the ids of its grants become stale.
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*abort_)(pr_txn txn);

  /* [H] Every number of a host that is not free, ascending, TCP before UDP, in pieces: *cursor 0 begins, *n = 0 ends; a cursor is
   * good inside its transaction. As it was when the transaction began: what this one took or gave is not shown. The list of the
   * host that was asked about last is kept, so that its pieces cost no more than the whole; warm once it had as many entries.
   *   PR_ENOENT   unknown host
   *   PR_ENOSPC   cap 0 and something is left
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*holders)(pr_txn txn, uint32_t host, uint32_t *cursor, pr_held *held, uint32_t cap, uint32_t *n);

  /* H: with or without an open transaction; begin and confirm from any thread: queued, in effect at the next txn_begin or pump --- */

  /* [H] Stop ordered: no reader is sent there after the next R call; the numbers stay held. flags 0.
   *   PR_ELIMIT   n beyond max_allocs
   * each:
   *   PR_ESTALE   ended, or already confirmed
   *   PR_ESTATE   already begun, or not committed yet */
  int32_t (*release_begin)(pr_ctx ctx, const pr_alloc *ids, uint32_t n, uint32_t flags, int32_t *rc);

  /* [H] The last process is gone: the numbers cool from now_ms (PR_REL_NO_COOL: are free at once), the id is stale. Begins too if
   * it was not.
   *   PR_ELIMIT   n beyond max_allocs
   * each:
   *   PR_ESTALE   ended, or already confirmed
   *   PR_ESTATE   not committed yet */
  int32_t (*release_confirm)(pr_ctx ctx, const pr_alloc *ids, uint32_t n, uint32_t flags, uint64_t now_ms, int32_t *rc);

  /* [H] Releases every grant of a job, or of one step of it (PR_ANY = all): confirm 0 begins, 1 confirms as release_confirm with
   * flags 0. *done: how many; what is not committed, and with confirm 0 what has begun already, is passed over.
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*release_job)(pr_ctx ctx, uint64_t job, uint32_t step, uint32_t confirm, uint64_t now_ms, uint32_t *done);

  /* [H] The id of a key; incarnation PR_ANY = newest. profile, host and flags of the key are not read.
   *   PR_ENOENT   the key has no grant */
  int32_t (*grant_find)(pr_ctx ctx, const pr_want *key, pr_alloc *id);

  /* [H] A grant as a record; every number of it in the order of the profile. need counts numbers.
   *   PR_ENOSPC   cap < *need
   *   PR_EBUSY    another thread is in an H call or in pump */
  int32_t (*grant_get)(pr_ctx ctx, pr_alloc id, pr_rec *record, uint16_t *ports, uint32_t cap, uint32_t *need);

  /* [H] The environment of a replica: K=V\0K=V\0\0. Holds <P>PORT_NAME (_LAST and _COUNT of a block), <P>ADDR_NAME, <P>HOST,
   * <P>HOST_ADDR, <P>SERVICE, <P>NAMESPACE, <P>REPLICA, <P>INCARNATION, the aliases, and PORT when exactly one port is declared.
   * Where no address is known (yet), that ADDR_ or HOST_ADDR is missing. RUN, SCRATCH, CONTROLLER and TOKEN_FILE are the
   * worker's to add. flags 0. need counts the last NUL.
   *   PR_ENOSPC   cap < *need */
  int32_t (*env)(pr_ctx ctx, pr_alloc id, uint32_t flags, char *buf, uint32_t cap, uint32_t *need);

  /* R: reports -------------------------------------------------------------------------------------------------------------- */

  /* [R] Publishes what H calls changed; without an open transaction also applies queued releases, ends cooling that is due and
   * compacts. Call it once after each cycle and when *next_ms is reached: when something is due, or PR_NEVER. */
  int32_t (*pump)(pr_ctx ctx, uint64_t now_ms, uint64_t *next_ms);

  /* [R] PR_HOST_*. Readers see it at once, the pool from the next txn_begin or pump on.
   *   PR_ENOENT   unknown host */
  int32_t (*host_state)(pr_ctx ctx, uint32_t host, uint32_t state);

  /* [R] A host's addresses, the whole list; n = 0: none, then none of its endpoints is listed. Readers see it at once; which hosts
   * fit a profile with networks changes with the next txn_begin or pump.
   *   PR_ENOENT   unknown host
   *   PR_ESTALE   seq is not greater
   *   PR_ELIMIT   n > 256 */
  int32_t (*report_addr)(pr_ctx ctx, uint32_t host, uint64_t seq, const pr_addr *addresses, uint32_t n);

  /* [R] Where strangers listen, the whole list. In effect from the next txn_begin or pump on.
   *   PR_ENOENT   unknown host
   *   PR_ESTALE   seq is not greater
   *   PR_ELIMIT   more than 131,070 elements or numbers */
  int32_t (*report_foreign)(pr_ctx ctx, uint32_t host, uint64_t seq, const pr_foreign *listeners, uint32_t n);

  /* [R] A bind was refused: foreign for foreign_rest_ms, from the largest now_ms that was told; ask again with incarnation + 1. In
   * effect from the next txn_begin or pump on; the grant keeps its numbers until it is released.
   *   PR_ENOENT   not a number of this grant on that side
   *   PR_ESTATE   not committed yet */
  int32_t (*report_conflict)(pr_ctx ctx, pr_alloc id, uint16_t port, uint32_t proto, uint32_t pid);

  /* [R] Readiness of replicas; published at once.
   *   PR_ELIMIT   n beyond max_allocs
   * each:
   *   PR_ESTALE   ended, or (run, seq) is not greater; of what restore_put brought back, older than the record's: the same confirms it
   *   PR_ESTATE   not committed yet */
  int32_t (*report_ready)(pr_ctx ctx, const pr_ready *reports, uint32_t n, int32_t *rc);

  /* [R] Waiting asks: host (an index, whoever stands there) or PR_ANY; "any" leaves their fixed numbers alone. In effect from the
   * next txn_begin or pump on. A key that waits for the same keeps its place; for something else it waits anew.
   *   PR_ELIMIT   n beyond max_waits
   * each:
   *   PR_ENOENT   unknown profile or host
   *   PR_EEXIST   the key has numbers
   *   PR_EINVAL   unknown flag bit
   *   PR_ELIMIT   max_waits wait */
  int32_t (*wait_put)(pr_ctx ctx, const pr_want *wants, uint32_t n, int32_t *rc);

  /* [R] Forgets waiting asks; the commit of a grant of the key does too.
   *   PR_ELIMIT   n beyond max_waits
   * each:
   *   PR_ENOENT   the key does not wait */
  int32_t (*wait_drop)(pr_ctx ctx, const pr_want *wants, uint32_t n, int32_t *rc);

  /* A: any thread ----------------------------------------------------------------------------------------------------------- */

  /* [A] One per context, made at the first call and ours: readable from a pump that finds asks that fit until wait_next has told them
   * all. Poll it, never read or close it; destroy makes it readable once more and closes it.
   *   PR_EIO      no descriptor is left; nothing was made */
  int32_t (*wait_fd)(pr_ctx ctx, int32_t *fd);

  /* [A] Asks that fit now, as pump found them, oldest first; of those that wait for alike none overtakes an older one. Nothing is
   * reserved: who stays waiting is told again when there is new room. *flags PR_MORE: some are left, and the
   * descriptor stays readable. */
  int32_t (*wait_next)(pr_ctx ctx, pr_want *wants, uint32_t cap, uint32_t *n, uint32_t *flags);

  /* [A] Where clients of a service go: one entry per replica and published port (absent port = all), by job, step, replica, in the
   * order of the profile. need counts entries; known, none ready, or no such port: need 0. *revision: of the newest change of what
   * is listed (PR_RESOLVE_ALL: of anything).
   *   PR_ENOENT   unknown service
   *   PR_ENOSPC   cap < *need */
  int32_t (*resolve)(pr_ctx ctx, pr_str service, pr_str port, uint32_t flags, pr_endpoint *endpoints, uint32_t cap, uint32_t *need,
                     uint64_t *revision);

  /* [A] Keeps one version of a service (absent service: one of each, by name) for reading in pieces, as resolve lists it with
   * PR_RESOLVE_ALL: every state. *count: how many entries. *revision: every change up to it is in; of one service none after it, of all
   * at most what came during the call. To follow it, watch_open with since = *revision. Holds memory until snap_close. Never waits for a
   * writer. Cost: linear in what it holds.
   *   PR_ENOENT   unknown service
   *   PR_ELIMIT   1,024 are open */
  int32_t (*snap_open)(pr_ctx ctx, pr_str service, pr_snap *snap, uint64_t *revision, uint32_t *count);

  /* [A] Reads up to cap entries from `from` on; *n = 0 ends. Any piece at any time, always of the same version; cheapest in order.
   *   PR_ENOSPC   cap is 0 and something is left */
  int32_t (*snap_read)(pr_snap snap, uint32_t from, pr_endpoint *endpoints, uint32_t cap, uint32_t *n);

  /* [A] Lets the version go; its id is stale from here on. */
  int32_t (*snap_close)(pr_snap snap);

  /* [A] Follows a service, known or not yet, or all (absent service), from a revision on: what changed after `since` is unseen. Begin
   * with the revision of a snapshot of this context (those of an earlier one mean nothing), with 0 if it is new, or with PR_NEVER to be
   * told PR_RESET first. *fd: an eventfd (CLOEXEC, NONBLOCK), ours, readable while something is unseen: poll it, never read or close
   * it. watch_close closes it; destroy makes it readable once more and closes it.
   *   PR_ELIMIT   max_watches are open
   *   PR_EIO      no descriptor is left; nothing was made */
  int32_t (*watch_open)(pr_ctx ctx, pr_str service, uint64_t since, pr_watch *watch, int32_t *fd);

  /* [A] What changed since the last call, by revision; each change of a replica as rows of its published ports, to be kept by
   * (ep.id, ep.name). PR_CH_UPSERT: it is so from now on. PR_CH_REMOVE: it is listed no more, ep as it was; no error if you never had
   * it. PR_CH_SERVICE_GONE: the last profile and the last grant of the service have ended; of ep only `service` counts. While the
   * descriptor is silent you have what resolve lists with PR_RESOLVE_ALL, but that UNCONFIRMED for READY and back is not told.
   * *flags PR_MORE: call again, the descriptor stays readable (with cap 0 too). *flags PR_RESET, with *n 0: changes are forgotten (at
   * least the newest 16,384 are kept), or `since` is ahead of this context. Then drop your rows, read a snapshot (PR_ENOENT: there are
   * none) and call again; skip changes that are not newer than its revision. The descriptor may be readable once with nothing unseen.
   * Never waits for a writer, and no writer waits for it. */
  int32_t (*watch_next)(pr_watch watch, pr_change *changes, uint32_t cap, uint32_t *n, uint32_t *flags);

  /* [A] Ends a watch and closes its descriptor, here or with the call that another thread is in just now; its id is stale. */
  int32_t (*watch_close)(pr_watch watch);

  /* [A] The name of a number of pr_endpoint: PR_TEXT_SERVICE of service, PR_TEXT_PORT of name, PR_TEXT_HOST of host (who stands at
   * that index now). Numbers of services and ports are given once and mean the same until destroy. need counts the NUL.
   *   PR_ENOENT   nothing has this number
   *   PR_ENOSPC   cap < *need */
  int32_t (*text)(pr_ctx ctx, uint32_t kind, uint32_t number, char *buf, uint32_t cap, uint32_t *need);

  /* [A] Counters; with other threads at work not of one moment. Also of a poisoned context. size less than 8 or no multiple of 8 is
   * PR_EINVAL.
   *   PR_E2BIG    a field that we do not know is not 0 */
  int32_t (*stats)(pr_ctx ctx, pr_stats *stats);

  /* [A] Text for people, many lines: settings, counts, what is due, hosts, profiles, grants and waits, a thousand of each. No fd, the
   * core does no IO. Also of a poisoned context: what a defect is in the way of is left out. Form and words may change. need counts
   * the NUL; by the next call it may be more.
   *   PR_ENOSPC   cap < *need */
  int32_t (*dump)(pr_ctx ctx, char *buf, uint32_t cap, uint32_t *need);

  /* [A] This thread's last failure in words, empty before the first; rendered here. Not cleared by success, not replaced by its own
   * codes.
   *   PR_ENOSPC   cap < *need */
  int32_t (*last_error)(char *buf, uint32_t cap, uint32_t *need);

  /* [A] The meaning of a code: static storage, never NULL, also for numbers nobody knows. */
  const char *(*strerror_)(int32_t code);

  /* [A] The meaning of a PR_R_*: static storage, never NULL, also for numbers nobody knows. */
  const char *(*reason_)(uint32_t reason);

  /* S: supervision; no context. Each pr_sup by one thread at a time: a second caller gets PR_EBUSY at once; different ones by any threads.
   * At most 65,536 per process. now_ms: CLOCK_MONOTONIC or a like one, one line per pr_sup. PR_EPOISON and PR_EFORK are of one pr_sup, the
   * others go on; sup_free also ends a poisoned one. These calls may allocate; they start, read and write nothing ------------- */

  /* [S] A machine that has not begun, by a profile in JSON with the fields of docs/profile.md: all of it is checked, and its rules of
   * supervision are kept. seed decides jitter and spread alone. Its id goes to *sup; end it with sup_free.
   *   PR_EINVAL   the profile is refused; last_error has every error with line, column, field and what is allowed
   *   PR_ELIMIT   65,536 machines exist */
  int32_t (*sup_new)(pr_str profile_json, uint64_t seed, pr_sup *sup);

  /* [S] A machine as sup_save wrote it, under the same profile; hand over PR_SE_ADOPT next. Its moments are of one boot: keep the boot's id
   * (/proc/sys/kernel/random/boot_id) beside the state, and begin anew with sup_new when it differs: every run is lost then.
   *   PR_EINVAL   the profile is refused, or the state is damaged, cut off or nothing of ours
   *   PR_EVERSION the state is of a newer version
   *   PR_ESTATE   the profile's rules of supervision are not those it was saved under
   *   PR_ELIMIT   65,536 machines exist, or n is beyond 4 MiB */
  int32_t (*sup_load)(pr_str profile_json, const void *state, uint64_t n, pr_sup *sup);

  /* [S] The whole state, effects not yet taken included, as bytes of ours: some KB, at most 1 MB; read by this version and later ones. The
   * same bytes until something happens.
   *   PR_ENOSPC   cap < *need
   *   PR_EBUSY    another thread is in this machine */
  int32_t (*sup_save)(pr_sup sup, void *buf, uint32_t cap, uint32_t *need);

  /* [S] Something happened; then take the effects. An event of an earlier run or probe, or one that came before, has none and is PR_OK.
   *   PR_EINVAL   also an unknown kind, probe_kind or result, or a code that is none
   *   PR_E2BIG    event uses a field that we do not know
   *   PR_EAGAIN   256 effects were not taken yet: take them first
   *   PR_ESTATE   the first moment after sup_load is before the state's last one, so it is of another boot: free it, begin anew
   *   PR_EBUSY    another thread is in this machine */
  int32_t (*sup_event)(pr_sup sup, uint64_t now_ms, const pr_sup_event *event);

  /* [S] Does what is due by now_ms; then take the effects. Too early a call does nothing.
   *   PR_EAGAIN   as sup_event
   *   PR_ESTATE   as sup_event
   *   PR_EBUSY    another thread is in this machine */
  int32_t (*sup_deadline)(pr_sup sup, uint64_t now_ms);

  /* [S] *ms: when sup_deadline is to be called next if nothing happens before; PR_NEVER if nothing is due.
   *   PR_EBUSY    another thread is in this machine */
  int32_t (*sup_next_deadline)(pr_sup sup, uint64_t *ms);

  /* [S] The next thing to do, in order. Returns 1: filled, 0: none is left, effect untouched.
   *   PR_E2BIG    effect is longer than ours and not zero behind it
   *   PR_EBUSY    another thread is in this machine */
  int32_t (*sup_next_effect)(pr_sup sup, pr_sup_effect *effect);

  /* [S] Ends the machine; its id is stale from here on.
   *   PR_EBUSY    another thread is in this machine */
  int32_t (*sup_free)(pr_sup sup);
} pr_api;

/* Whether the table of a plugin goes as far as function f. */
#define PR_HAS(api, f) ((api)->size >= (uint32_t)(offsetof(pr_api, f) + sizeof((api)->f)))

/* The only export; any thread. *api points to static storage, the same for every caller, readable until the process ends (also after
 * dlclose: -z nodelete).
 *   PR_EVERSION another major number, or a wanted capability that we lack: *api is untouched and *plugin_abi (or NULL) says what we speak
 *   PR_E2BIG    host uses a field that we do not know */
int32_t pr_get_api(const pr_hostinfo *host, const pr_api **api, uint32_t *plugin_abi);

#ifdef __cplusplus
}
#endif
#endif
