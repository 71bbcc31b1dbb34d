/* portreeve.h - the C contract of the port allocator. C99..C17, C++11..C++20; 64-bit Linux, one layout for all builds.
 *
 * Classes   C  control: may allocate and block; never while a transaction is open (PR_EBUSY).
 *           H  hot: no syscall, no log, no waiting; no allocation once warm. One thread at a time: a second caller
 *              gets PR_EBUSY at once. release_begin and release_confirm alone may come from any thread at any moment.
 *              A thread is warm after last_error(NULL, 0, &n).
 *           R  report: any thread, bounded, may allocate; publishes what it and earlier H calls changed.
 *           A  any thread; readers never wait for a writer.
 *           S  supervision: each pr_sup by one thread at a time.
 * Memory    Inputs are copied before return. Outputs go into the caller's buffers. Nothing is handed over, so nothing is freed.
 *           NULL is allowed only for what says "or NULL", for a buffer of cap = 0 and for an array of n = 0.
 * Sizes     A struct that starts with `size` may grow; in an array the stride is the first element's size and all must be equal
 *           (else PR_EINVAL). Longer than ours: the tail must be zero (PR_E2BIG). Structs without `size` are frozen for ever;
 *           a new need is a new type and a new function. pr_port grows by pr_profile.port_size.
 * Buffers   (buf, cap, *need): need is always set to what a full answer takes; cap < need -> PR_ENOSPC, nothing written, nothing taken.
 *           Text ends with a NUL that need counts.
 * Batches   All n are tried. rc (or NULL) gets one code per element; the return value is the first code that is not PR_OK.
 * Refused   Any code but PR_OK: nothing changed and no output but `need` was written, unless the call says more.
 * Time      now_ms, at_ms: the caller's monotonic milliseconds, one line per context; a smaller value counts as the largest one seen.
 *           seq, revision: only greater counts. A report with an equal or smaller seq is PR_ESTALE and has no effect.
 * Words     Host set = words of 64 bits, host h is bit h % 64 of word h / 64 (Slurm's bitstr words on little endian).
 * Codes     Each call lists what it can return. Beside those, every call that takes an id may return
 *           PR_ESTALE   the id is 0, of another kind, or of something that has ended; nothing was touched
 *           PR_EFORK    the context was made by the parent of this process: make one here
 *           PR_EPOISON  a defect of ours was caught earlier; the context only answers stats, dump, last_error and destroy
 *           and every call PR_EINVAL for a NULL, misaligned or malformed argument, an unknown flag bit or a wrong size,
 *           and PR_ENOSYS while it is marked "Not built yet". last_error has the words.
 */
#ifndef PORTREEVE_H
#define PORTREEVE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define PR_ABI 1u
#define PR_ANY 0xffffffffu              /* no number: any host, all steps, not about one port */
#define PR_NEVER 0xffffffffffffffffull  /* no deadline */

/* Codes: frozen. */
enum { PR_OK = 0, PR_EINVAL = -1, PR_ESTALE = -2, PR_EBUSY = -3, PR_EAGAIN = -4, PR_ENOSPC = -5, PR_ENOPORT = -6, PR_EEXIST = -7,
       PR_E2BIG = -8, PR_EVERSION = -9, PR_EFORK = -10, PR_EPOISON = -11, PR_ENOMEM = -12, PR_ESTATE = -13, PR_ELIMIT = -14,
       PR_EIO = -15, PR_ENOENT = -16, PR_ENOSYS = -17 /* not built yet; no release returns it */ };
/* Reasons: why a host does not fit. */
enum { PR_R_NONE = 0, PR_R_HELD = 1, PR_R_RELEASING = 2, PR_R_COOLING = 3, PR_R_RESERVED = 4, PR_R_FOREIGN = 5, PR_R_NOT_IN_POOL = 6,
       PR_R_TOO_FEW = 7, PR_R_NO_BLOCK = 8, PR_R_AWAITED = 9, PR_R_DRAINED = 10, PR_R_SUSPECT = 11, PR_R_LOST = 12,
       PR_R_UNKNOWN_HOST = 13, PR_R_NO_ADDRESS = 14, PR_R_NOT_REPORTED = 15 }; /* may grow; explain_all adds what has no entry to the last one */
enum { PR_TCP = 1, PR_UDP = 2, PR_TCP_UDP = 3 };                     /* proto, everywhere; 0 is PR_EINVAL */
enum { PR_HOST_UP = 0, PR_HOST_DRAINED = 1, PR_HOST_SUSPECT = 2, PR_HOST_LOST = 3 }; /* only UP takes new grants; LOST: endpoints out, numbers stay held */
enum { PR_P_FREE = 0, PR_P_HELD = 1, PR_P_RELEASING = 2, PR_P_COOLING = 3, PR_P_RESERVED = 4, PR_P_FOREIGN = 5 };
enum { PR_E_NOT_READY = 0, PR_E_READY = 1, PR_E_SERVING = 2, PR_E_UNCONFIRMED = 3, PR_E_TERMINATING = 4 };
enum { PR_CH_UPSERT = 1, PR_CH_REMOVE = 2, PR_CH_SERVICE_GONE = 3 };
enum { PR_TEXT_SERVICE = 1, PR_TEXT_PORT = 2, PR_TEXT_HOST = 3 };

#define PR_CAP_ENDPOINTS 1ull           /* caps / want_caps: unknown wanted bit -> PR_EVERSION */
#define PR_CAP_SUPERVISION 2ull
#define PR_CFG_NO_RESTORE 1u            /* pr_config.flags: nothing runs yet; skip the restore phase */
#define PR_HOST_LOWEST 1u               /* pr_host.flags: draw the lowest number instead of next-fit */
#define PR_HOST_RANDOM 2u               /*                random start from pr_config.seed, then next free */
#define PR_PORT_UNPUBLISHED 1u          /* pr_port.flags */
#define PR_WANT_PREFER 1u               /* pr_want.flags: former numbers of this replica first, if they cool for it; never a reason to refuse */
#define PR_TXN_WHATIF 1u                /* txn_begin: never committable; the only kind in which give is allowed */
#define PR_RESERVE_ALL 1u               /* reserve: all n wants or none (a gang over hosts); PR_EEXIST is no failure here */
#define PR_RESERVE_SAME 2u              /* with ALL: each "any" number or block equal on all hosts */
#define PR_REL_NO_COOL 1u               /* release_confirm: nothing ever listened there, free at once */
#define PR_REMOVE_FORCE 1u              /* host_remove: although numbers are held */
#define PR_RESOLVE_ALL 1u               /* resolve: also NOT_READY, SERVING, TERMINATING; READY and UNCONFIRMED are always listed */
#define PR_REC_CONFLICT 1u              /* pr_rec.flags, out: shares a number with another record */
#define PR_MORE 1u                      /* *_next flags: call again, fd stays readable */
#define PR_RESET 2u                     /* watch_next: `since` is older than what is kept; read a snapshot, then go on */

typedef uint64_t pr_ctx, pr_txn, pr_alloc, pr_snap, pr_watch, pr_sup; /* kind + slot + generation; 0 = none; never reused within a process */

typedef struct pr_str { const char *p; uint64_t n; } pr_str;          /* UTF-8, no NUL; n = 0: absent */
typedef struct pr_range { uint16_t lo, hi; } pr_range;                /* inclusive, 1..65535 */
typedef struct pr_hostinfo { uint32_t size, abi; uint64_t want_caps; } pr_hostinfo;
typedef struct pr_config { uint32_t size, flags;
  uint32_t max_hosts, max_allocs, max_profiles, max_waits, max_watches, max_ports; /* memory for H is taken in create; max_ports: of one transaction.
                                                                         0: 16,384 131,072 4,096 4,096 1,024 65,536; above 2^20 2^24 2^20 2^24 2^20 2^24: PR_ELIMIT */
  uint32_t cool_ms, foreign_rest_ms;                                 /* 0: 60,000 and 60,000 */
  uint64_t seed; pr_str env_prefix;                                  /* absent: PORTREEVE_; else [A-Za-z_][A-Za-z0-9_]*, at most 64 */
  void *ud; void (*log)(void *ud, int32_t level, int32_t code, const char *msg, uint64_t n); /* or NULL; called from C and R only, under no lock;
                                                                         level as syslog: 3 error, 4 warning, 6 information; msg has no NUL, valid during the call;
                                                                         called by any thread that is in such a call; must not unwind */
} pr_config;
typedef struct pr_host { uint32_t size, flags, host, state; pr_str name;
  const pr_range *dynamic, *fixed, *reserved;                        /* NULL: 20000-32767, 1024-65535, none; at most 1,024 ranges each */
  uint32_t n_dynamic, n_fixed, n_reserved, cool_ms; } pr_host;       /* cool_ms 0: the context's */
typedef struct pr_network { uint32_t size, flags; pr_str name; uint8_t ip[16]; uint32_t family, prefix; } pr_network;
typedef struct pr_port { pr_str name, env, network; const pr_range *within; uint32_t n_within; /* within: or NULL */
  uint16_t fixed, count; uint32_t proto, flags; } pr_port;           /* fixed 0 = any; count > 1 = a block of consecutive numbers, then fixed must be 0; count 0 = 1 */
typedef struct pr_profile { uint32_t size, flags; pr_str name, service; const pr_port *ports; uint32_t n_ports, port_size; } pr_profile; /* service "web.alice" */
typedef struct pr_need { uint32_t profile, replicas; uint64_t at_ms; } pr_need; /* replicas 0 = 1: at least so many at once; at_ms 0 = now: cooling that ends by then counts as free */
typedef struct pr_want { uint64_t job; uint32_t step, replica, incarnation, profile, host, flags; } pr_want; /* key: job, step, replica, incarnation */
typedef struct pr_grant { pr_alloc id; int32_t rc; uint32_t reason, host, n_ports, port_off, retry_ms; } pr_grant; /* ports[port_off .. +n_ports], every number, in the
                                                                         order of the profile, a block as its numbers ascending; retry_ms: of COOLING */
typedef struct pr_rec { pr_want who; pr_alloc id; uint64_t seq; uint32_t n_ports, port_off, state, cool_left_ms, ready, run, restarts, flags; } pr_rec; /* state: PR_P_*; ready: PR_E_* */
typedef struct pr_addr { uint8_t ip[16]; uint32_t family, scope, pref, flags; } pr_addr; /* family 4 or 6, v4 in ip[0..4], rest zero; scope 0 global 1 site 2 link 3 host; lowest pref wins,
                                                                         then lowest scope, then the earlier */
typedef struct pr_foreign { uint16_t lo, hi; uint32_t proto, pid, flags; char comm[16]; } pr_foreign; /* pid 0: unknown */
typedef struct pr_ready { pr_alloc id; uint64_t seq; uint32_t run, state, reason, restarts; } pr_ready; /* the incarnation is in id; order: (run, seq) */
typedef struct pr_why { pr_alloc holder; uint32_t reason, item, proto, have, want, retry_ms, pid; uint16_t port, zero; } pr_why; /* item: index in pr_profile.ports or PR_ANY */
typedef struct pr_held { pr_alloc id; uint16_t lo, hi; uint32_t proto, state, left_ms, replica, pid; } pr_held;
typedef struct pr_endpoint { pr_alloc id; uint64_t revision; uint8_t ip[16]; uint16_t port, count; uint32_t family, proto, state, service, name, replica, host; } pr_endpoint; /* family 0: no address known */
typedef struct pr_change { pr_endpoint ep; uint64_t revision; uint32_t kind, flags; } pr_change;
typedef struct pr_stats { uint32_t size, flags; uint64_t hosts, allocs, waits, ports_used, ports_total, ports_cooling, commits, aborts, busy, stale, poisoned,
  snaps, watches, watch_resets, queued, bytes; } pr_stats;            /* in: size = room; out: size = ours, min of both filled */

/* Supervision. Numbers from 1 in the order the supervision page writes its kinds, results, probe kinds, reports and reasons. PortConflict: code = port, flags = proto. */
typedef struct pr_sup_event { uint32_t size, kind, run, probe_kind, probe, result; int32_t code; uint32_t flags; uint64_t ms; } pr_sup_event; /* code: exit code, signal or errno; flags: 1 signal 2 core 4 oom 8 unknown; ms: grace or spread */
typedef struct pr_sup_effect { uint32_t size, kind, run, probe_kind, number, report, reason; int32_t code; uint32_t count, flags; uint64_t ms; } pr_sup_effect; /* ms: probe timeout or delay */

typedef struct pr_api { uint32_t size, abi; uint64_t caps;
  /* C: control --------------------------------------------------------------------------------------------------------------- */

  /* Makes a context; it begins in the restore phase (unless PR_CFG_NO_RESTORE). Its id goes to *ctx; end it with destroy.
   * log and ud are kept until destroy has returned.
   * PR_E2BIG config from a newer host uses a field we do not know; PR_ELIMIT a maximum is too large or 256 contexts exist;
   * PR_ENOMEM nothing was made: on a warm thread that holds whichever block the system refuses, large or small. Memory that runs out later, in
   * a call that may allocate, ends the process; PR_EBUSY another thread makes or ends a context. */
  int32_t (*create)(const pr_config *, pr_ctx *ctx);

  /* Ends a context; an open transaction is aborted, all its ids become stale, all its fds are readable once, then closed.
   * A call another thread is in finishes first on what it holds. PR_EBUSY another thread makes or ends a context. */
  int32_t (*destroy)(pr_ctx);

  /* Adds hosts or changes known ones, all n or none. The name is the host, the index is where it stands: a known name at another index
   * moves with its holders; changed ranges do not touch holders. Two of the n may change places.
   * PR_EBUSY a transaction is open, or an index is still used by another name with holders; PR_ELIMIT index or n beyond max_hosts, or too many ranges;
   * PR_E2BIG. */
  int32_t (*host_put)(pr_ctx, const pr_host *, uint32_t n);

  /* Removes a host. PR_ENOENT no such host; PR_EBUSY numbers are held (with PR_REMOVE_FORCE their grants end: their ids are stale) or a
   * transaction is open. */
  int32_t (*host_remove)(pr_ctx, uint32_t host, uint32_t flags);

  /* Names networks that pr_port.network may choose. PR_EBUSY a transaction is open; PR_E2BIG; PR_ELIMIT. Not built yet. */
  int32_t (*network_put)(pr_ctx, const pr_network *, uint32_t n);

  /* Makes the ports of a kind of job known; *id is what pr_want and pr_need name, not used again. The service is known from here on.
   * PR_EBUSY a transaction is open; PR_ELIMIT more than max_profiles, 256 numbers or 1,024 ranges; PR_E2BIG; PR_ENOSYS a port names a network. */
  int32_t (*profile_put)(pr_ctx, const pr_profile *, uint32_t *id);

  /* Takes no new asks for a profile; kept until its last grant and wait are gone; its number is not used again. PR_ENOENT; PR_EBUSY a transaction is open. */
  int32_t (*profile_drop)(pr_ctx, uint32_t id);

  /* Brings back what the scheduler's own records say is held, only before restore_end. Each pr_grant (or NULL) gets the new id and its own code.
   * Records that share a number are both kept, flagged and counted. Numbers outside today's pool stay held until released.
   * PR_ESTATE the restore phase is over; PR_ENOENT unknown host or profile; PR_EEXIST the key is known; PR_ELIMIT; PR_EBUSY. */
  int32_t (*restore_put)(pr_ctx, const pr_rec *, uint32_t n, const uint16_t *ports, uint32_t n_ports, pr_grant *);

  /* Ends the restore phase, also when nothing was restored; *conflicts = records that share a number. flags 0.
   * PR_ESTATE it has ended already; PR_EBUSY a transaction is open. */
  int32_t (*restore_end)(pr_ctx, uint32_t flags, uint64_t now_ms, uint32_t *conflicts);

  /* Reads every grant, in pieces: *cursor 0 begins, *n = 0 ends. PR_ENOSPC not even one record fits; PR_EBUSY. Not built yet. */
  int32_t (*export_)(pr_ctx, uint64_t *cursor, pr_rec *, uint32_t cap, uint16_t *ports, uint32_t ports_cap, uint32_t *n, uint32_t *n_ports);

  /* H: inside a transaction -------------------------------------------------------------------------------------------------- */

  /* Opens the context's one transaction: applies queued releases and reports, ends cooling that is due, pins the view.
   * A what-if (PR_TXN_WHATIF) tries on copies of the hosts that it touches, for which it allocates; nobody sees any of it, and abort ends it.
   * PR_EBUSY one is open, or another thread is in an H call or in pump. */
  int32_t (*txn_begin)(pr_ctx, uint32_t flags, uint64_t now_ms, pr_txn *);

  /* Which hosts can take the need. Returns how many hosts are set in out, or a code. Earlier reservations of this transaction count.
   * cand or NULL = all hosts; may be out. max_replicas: NULL, or 64 * nwords entries: how many replicas fit on each host set in out
   * (exact without blocks, else a lower bound of at least 1; at most 65,535), 0 for the others. Bits past the last host are ignored.
   * PR_ENOENT unknown profile; PR_ELIMIT nwords reaches beyond index 2^20; PR_EBUSY. */
  int64_t (*feasible)(pr_txn, const pr_need *, const uint64_t *cand, uint64_t *out, uint16_t *max_replicas, uint32_t nwords);

  /* Why a host does not fit, one pr_why per cause; need 0 = fits. holder: of HELD and RELEASING, else 0; have, want: of TOO_FEW, want also of NO_BLOCK; retry_ms: of
   * COOLING; pid: of FOREIGN, 0 if unknown; port: 0 if the cause is about no number; proto: 0 and item: PR_ANY if it is about the host. Allocates.
   * PR_ENOENT unknown profile; PR_ENOSPC; PR_EBUSY. */
  int32_t (*explain)(pr_txn, const pr_need *, uint32_t host, pr_why *, uint32_t cap, uint32_t *need);

  /* Counts the first reason of each host that does not fit: hosts_by_reason[PR_R_*], 0 where nothing was counted. cand or NULL = all hosts; bits past the
   * last host are ignored. Allocates. PR_ENOENT unknown profile; PR_ELIMIT nwords reaches beyond index 2^20; PR_EBUSY. */
  int32_t (*explain_all)(pr_txn, const pr_need *, const uint64_t *cand, uint32_t nwords, uint32_t *hosts_by_reason, uint32_t n_reasons);

  /* Takes numbers at once as tentative: free for nobody, seen by no reader, until commit, rollback or abort. Each of the n grants gets
   * its own rc, and the call returns the first that is not PR_OK (with PR_RESERVE_ALL: the first failure; what was given back has PR_EAGAIN).
   * per element: PR_ENOPORT it does not fit, `reason` says why; PR_EEXIST same key again, with id and numbers; PR_ESTALE a higher incarnation is known;
   *   PR_ENOENT unknown profile or host (reason UNKNOWN_HOST); PR_EAGAIN its older grant is being freed, ask in the next transaction; PR_EINVAL; PR_ELIMIT max_allocs.
   * whole call, nothing taken: PR_EAGAIN before restore_end; PR_ENOSPC ports_cap < *need_ports; PR_ELIMIT n beyond max_allocs, or more numbers than max_ports;
   *   PR_EBUSY.
   * PR_RESERVE_SAME: all want one profile on hosts of their own, else PR_EINVAL for the one that differs; each may fit where all have nothing in common, then each
   *   is PR_ENOPORT; a key that has numbers is a failure here (PR_EEXIST), unless all n have them and they are the same. */
  int32_t (*reserve)(pr_txn, uint32_t flags, const pr_want *, uint32_t n, pr_grant *, uint16_t *ports, uint32_t ports_cap, uint32_t *need_ports);

  /* In a what-if: as if these ended now and cooled from now, until a rollback to before it. Their keys stay theirs: reserve answers such a key
   * PR_EAGAIN, a higher incarnation of it is a new grant. whole call: PR_ESTATE not a what-if; PR_ELIMIT n beyond max_allocs; PR_EBUSY.
   * per element: PR_ESTALE ended, or given already; PR_ESTATE not committed yet. */
  int32_t (*give)(pr_txn, const pr_alloc *, uint32_t n, int32_t *rc);

  /* A point to come back to. PR_ELIMIT 2^16 marks; PR_EBUSY. */
  int32_t (*mark)(pr_txn, uint32_t *);

  /* Gives back what was reserved since the mark, without a trace; the ids of those grants become stale. Later marks become stale, this one stays.
   * PR_ESTALE no such mark; PR_EBUSY. */
  int32_t (*rollback)(pr_txn, uint32_t mark);

  /* Makes the reservations held and ends the transaction; readers see them after the next R call. *commit_no: +1 per commit that changed something.
   * Sync your own record of key, host and numbers before this call. PR_ESTATE a what-if; PR_EBUSY. */
  int32_t (*commit)(pr_txn, uint64_t *commit_no);

  /* Ends the transaction without a trace; the ids of its grants become stale. PR_EBUSY. */
  int32_t (*abort_)(pr_txn);

  /* Every number of a host that is not free, ascending, TCP before UDP, in pieces: *cursor 0 begins, *n = 0 ends; a cursor is good inside its transaction. As it
   * was when the transaction began: what this one took or gave is not shown. id and replica: of HELD and RELEASING, else 0 and PR_ANY; left_ms: of COOLING;
   * pid: of FOREIGN, 0 if unknown. Allocates. PR_ENOENT unknown host; PR_ENOSPC cap 0 and something is left; PR_EBUSY. */
  int32_t (*holders)(pr_txn, uint32_t host, uint32_t *cursor, pr_held *, uint32_t cap, uint32_t *n);

  /* H: with or without an open transaction; begin and confirm from any thread: queued, in effect at the next txn_begin or pump --- */

  /* Stop ordered: no reader is sent there after the next R call; the numbers stay held. flags 0.
   * per element: PR_ESTALE ended, or already confirmed; PR_ESTATE already begun, or not committed yet. PR_ELIMIT n beyond max_allocs. */
  int32_t (*release_begin)(pr_ctx, const pr_alloc *, uint32_t n, uint32_t flags, int32_t *rc);

  /* The last process is gone: the numbers cool from now_ms (PR_REL_NO_COOL: are free at once), the id is stale. Begins too if it was not.
   * per element: PR_ESTALE ended, or already confirmed; PR_ESTATE not committed yet. PR_ELIMIT n beyond max_allocs. */
  int32_t (*release_confirm)(pr_ctx, const pr_alloc *, uint32_t n, uint32_t flags, uint64_t now_ms, int32_t *rc);

  /* Releases every grant of a job, or of one step of it (PR_ANY = all): confirm 0 begins, 1 confirms as release_confirm with flags 0. *done: how many; what is not
   * committed, and with confirm 0 what has begun already, is passed over. PR_EBUSY another thread is in an H call or in pump. */
  int32_t (*release_job)(pr_ctx, uint64_t job, uint32_t step, uint32_t confirm, uint64_t now_ms, uint32_t *done);

  /* The id of a key; incarnation PR_ANY = newest. profile, host and flags of the key are not read. PR_ENOENT. */
  int32_t (*grant_find)(pr_ctx, const pr_want *key, pr_alloc *);

  /* A grant as a record; every number of it in the order of the profile. need counts numbers. PR_ENOSPC; PR_EBUSY. */
  int32_t (*grant_get)(pr_ctx, pr_alloc, pr_rec *, uint16_t *ports, uint32_t cap, uint32_t *need);

  /* The environment of a replica: K=V\0K=V\0\0. Holds <P>PORT_NAME (_LAST and _COUNT of a block), <P>ADDR_NAME, <P>HOST, <P>HOST_ADDR, <P>SERVICE, <P>NAMESPACE,
   * <P>REPLICA, <P>INCARNATION, the aliases, and PORT when exactly one port is declared. Before the host has reported an address, ADDR_ and HOST_ADDR are missing.
   * RUN, SCRATCH, CONTROLLER and TOKEN_FILE are the worker's to add. flags 0. need counts the last NUL. PR_ENOSPC. */
  int32_t (*env)(pr_ctx, pr_alloc, uint32_t flags, char *buf, uint32_t cap, uint32_t *need);

  /* R: reports -------------------------------------------------------------------------------------------------------------- */

  /* Publishes what H calls changed; without an open transaction also applies queued releases, ends cooling that is due and compacts.
   * Call it once after each cycle and when *next_ms is reached: when something is due, or PR_NEVER. */
  int32_t (*pump)(pr_ctx, uint64_t now_ms, uint64_t *next_ms);

  /* PR_HOST_*. Readers see it at once, the pool from the next txn_begin or pump on. PR_ENOENT. */
  int32_t (*host_state)(pr_ctx, uint32_t host, uint32_t state);

  /* A host's addresses, the whole list; n = 0: none, then none of its endpoints is listed. PR_ENOENT; PR_ESTALE seq not greater; PR_ELIMIT n > 256. */
  int32_t (*report_addr)(pr_ctx, uint32_t host, uint64_t seq, const pr_addr *, uint32_t n);

  /* Where strangers listen, the whole list. In effect from the next txn_begin or pump on; comm is NUL-padded. PR_ENOENT; PR_ESTALE seq not greater;
   * PR_ELIMIT more than 131,070 elements or numbers. */
  int32_t (*report_foreign)(pr_ctx, uint32_t host, uint64_t seq, const pr_foreign *, uint32_t n);

  /* A bind was refused: foreign for foreign_rest_ms, from the largest now_ms that was told; ask again with incarnation + 1. In effect from the next txn_begin or
   * pump on; the grant keeps its numbers until it is released. PR_ENOENT not a number of this grant on that side; PR_ESTATE not committed yet. */
  int32_t (*report_conflict)(pr_ctx, pr_alloc, uint16_t port, uint32_t proto, uint32_t pid);

  /* Readiness of replicas; published at once. per element: PR_ESTALE ended, or (run, seq) not greater; PR_ESTATE not committed yet. PR_ELIMIT n beyond max_allocs. */
  int32_t (*report_ready)(pr_ctx, const pr_ready *, uint32_t n, int32_t *rc);

  /* Waiting asks: host (an index, whoever stands there) or PR_ANY; "any" leaves their fixed numbers alone. In effect from the next txn_begin or pump on. A key that
   * waits for the same keeps its place; for something else it waits anew. per element: PR_ENOENT unknown profile or host; PR_EEXIST the key has numbers;
   * PR_EINVAL; PR_ELIMIT max_waits. whole call: PR_ELIMIT n beyond max_waits. */
  int32_t (*wait_put)(pr_ctx, const pr_want *, uint32_t n, int32_t *rc);

  /* Forgets waiting asks; the commit of a grant of the key does too. per element: PR_ENOENT the key does not wait. PR_ELIMIT n beyond max_waits. */
  int32_t (*wait_drop)(pr_ctx, const pr_want *, uint32_t n, int32_t *rc);

  /* A: any thread ----------------------------------------------------------------------------------------------------------- */

  /* One per context, ours; poll it, never read it. PR_EIO no descriptor left. Not built yet. */
  int32_t (*wait_fd)(pr_ctx, int32_t *fd);

  /* Asks that fit now, as pump found them, oldest first; of those that wait for alike none overtakes an older one. Nothing is reserved: who stays waiting is told again
   * when there is new room. *flags PR_MORE: some are left. Until wait_fd is built, ask after each pump. */
  int32_t (*wait_next)(pr_ctx, pr_want *, uint32_t cap, uint32_t *n, uint32_t *flags);

  /* Where clients of a service go: one entry per replica and published port (absent port = all), by job, step, replica, in the order of the profile.
   * need counts entries; known, none ready: need 0. *revision: of the newest change of what is listed (PR_RESOLVE_ALL: of anything).
   * PR_ENOENT unknown service; PR_ENOSPC. */
  int32_t (*resolve)(pr_ctx, pr_str service, pr_str port, uint32_t flags, pr_endpoint *, uint32_t cap, uint32_t *need, uint64_t *revision);

  /* Keeps one version of a service for reading in pieces. PR_ENOENT; PR_ELIMIT. Not built yet. */
  int32_t (*snap_open)(pr_ctx, pr_str service, pr_snap *, uint64_t *revision, uint32_t *count);

  /* Reads up to cap entries from `from` on; *n = 0 ends. Not built yet. */
  int32_t (*snap_read)(pr_snap, uint32_t from, pr_endpoint *, uint32_t cap, uint32_t *n);

  /* Lets the version go. Not built yet. */
  int32_t (*snap_close)(pr_snap);

  /* absent service = all; unknown name waits; eventfd, ours, readable while something is unseen, never read it. PR_ELIMIT max_watches; PR_EIO. Not built yet. */
  int32_t (*watch_open)(pr_ctx, pr_str service, uint64_t since, pr_watch *, int32_t *fd);

  /* What changed since the last call. Not built yet. */
  int32_t (*watch_next)(pr_watch, pr_change *, uint32_t cap, uint32_t *n, uint32_t *flags);

  /* Closes the fd. Not built yet. */
  int32_t (*watch_close)(pr_watch);

  /* PR_TEXT_*: name of a number in pr_endpoint, pr_held. PR_ENOENT; PR_ENOSPC. Not built yet. */
  int32_t (*text)(pr_ctx, uint32_t kind, uint32_t number, char *buf, uint32_t cap, uint32_t *need);

  /* Counters; with other threads at work not of one moment. Also of a poisoned context. allocs: held and releasing; waits: replicas that wait; ports_used: numbers in
   * grants, tentative ones too; ports_total: numbers of the dynamic ranges; commits: that changed something; aborts: of transactions, not of what-ifs; busy, stale: calls that
   * were answered so; poisoned: 0 or 1; queued: what the next txn_begin or pump applies; bytes: 0, not counted; snaps, watches, watch_resets: 0 until they are built. size less
   * than 8 or no multiple of 8 is PR_EINVAL. PR_E2BIG. */
  int32_t (*stats)(pr_ctx, pr_stats *);

  /* Text for people; no fd, the core does no IO. Also of a poisoned context. PR_ENOSPC. Not built yet. */
  int32_t (*dump)(pr_ctx, char *buf, uint32_t cap, uint32_t *need);

  /* This thread's last failure in words, empty before the first; rendered here. Not cleared by success, not replaced by its own codes. PR_ENOSPC. */
  int32_t (*last_error)(char *buf, uint32_t cap, uint32_t *need);

  /* The meaning of a code: static storage, never NULL, also for numbers nobody knows. */
  const char *(*strerror_)(int32_t code);

  /* The meaning of a PR_R_*: static storage, never NULL, also for numbers nobody knows. */
  const char *(*reason_)(uint32_t reason);

  /* S: supervision; each pr_sup by one thread at a time; no context. None built yet ----------------------------------------- */

  /* A machine that has not begun, by a profile in the JSON of the profile page; seed decides jitter and spread. PR_ELIMIT no slot is left. */
  int32_t (*sup_new)(pr_str profile_json, uint64_t seed, pr_sup *);

  /* A machine as sup_save wrote it, in the same boot. PR_ELIMIT no slot is left. */
  int32_t (*sup_load)(pr_str profile_json, const void *state, uint64_t n, pr_sup *);

  /* The whole state, as bytes of ours. PR_ENOSPC. */
  int32_t (*sup_save)(pr_sup, void *buf, uint32_t cap, uint32_t *need);

  /* Something happened; then take the effects. An event of an earlier run or probe has none. PR_E2BIG. */
  int32_t (*sup_event)(pr_sup, uint64_t now_ms, const pr_sup_event *);

  /* Does what is due by now_ms; then take the effects. */
  int32_t (*sup_deadline)(pr_sup, uint64_t now_ms);

  /* When sup_deadline is to be called next if nothing happens before; PR_NEVER if nothing is due. */
  int32_t (*sup_next_deadline)(pr_sup, uint64_t *ms);

  /* The next thing to do, in order. Returns 1: filled, 0: none is left. */
  int32_t (*sup_next_effect)(pr_sup, pr_sup_effect *);

  /* Ends the machine; its id is stale from here on. */
  int32_t (*sup_free)(pr_sup);
} pr_api;

#define PR_HAS(api, f) ((api)->size >= (uint32_t)(offsetof(pr_api, f) + sizeof((api)->f)))

/* The only export; any thread. *api points to static storage, the same for every caller, readable until the process ends (also after dlclose: -z nodelete).
 * PR_EVERSION another major number, or a wanted capability that we lack: *api is untouched and *plugin_abi (or NULL) says what we speak.
 * PR_EINVAL; PR_E2BIG. */
int32_t pr_get_api(const pr_hostinfo *, const pr_api **api, uint32_t *plugin_abi);

#ifdef __cplusplus
}
#endif
#endif
