/* create without memory: whichever block is refused, it answers PR_ENOMEM, has made nothing, and works when there is memory again.
 *
 *   failing_create PLUGIN
 */
#include <sys/resource.h>
#include "host.h"
#include "heap.h"

static const pr_ctx untouched = 0x5a5a5a5a5a5a5a5aull;

static pr_config config(uint32_t hosts, uint32_t allocs) {
    pr_config made = {.size = sizeof made, .max_hosts = hosts, .max_allocs = allocs, .env_prefix = {"XCE_", 4}};
    return made;
}

/* That a context made now is whole. */
static void use(pr_ctx ctx) {
    const pr_host host = {.size = sizeof host, .name = str("n1")};
    const pr_port port = {.name = str("http"), .proto = PR_TCP};
    const pr_profile profile = {.size = sizeof profile, .name = str("web"), .service = str("web.alice"), .ports = &port, .n_ports = 1, .port_size = sizeof port};
    uint32_t web, conflicts, need;
    pr_txn txn;
    pr_grant grant;
    uint16_t number;
    uint64_t no;
    OK(api->host_put(ctx, &host, 1));
    OK(api->profile_put(ctx, &profile, &web));
    OK(api->restore_end(ctx, 0, 0, &conflicts));
    OK(api->txn_begin(ctx, 0, 0, &txn));
    const pr_want want = {.job = 1, .profile = web};
    OK(api->reserve(txn, 0, &want, 1, &grant, &number, 1, &need));
    OK(api->commit(txn, &no));
}

/* Refuses the first block, then the second, and so on, until create no longer asks for so many. Returns how many it asks for. */
static uint64_t refuse_each(const pr_config *asked, int rest) {
    uint64_t nth = 1;
    for (; nth < 10000; nth++) {
        pr_ctx ctx = untouched;
        const uint64_t taken = heap_taken, given = heap_given;
        heap_refused = 0;
        heap_refuse_rest = rest;
        heap_refuse = nth;
        const int32_t code = api->create(asked, &ctx);
        heap_refuse = 0;
        const uint64_t refused = heap_refused;
        if (refused == 0) {
            OK(code);
            OK(api->destroy(ctx));
            break;
        }
        CHECK_EQ(code, PR_ENOMEM);
        CHECK_EQ(ctx, untouched);
        CHECK_EQ(heap_taken - taken - refused, heap_given - given); /* what was taken was given back */
        if (nth % 8 == 1) {
            char words[256];
            uint32_t need;
            OK(api->last_error(words, sizeof words, &need));
            CHECK(strstr(words, "there is no memory") != NULL);
            OK(api->create(asked, &ctx));
            use(ctx);
            OK(api->destroy(ctx));
        }
    }
    CHECK(nth > 1 && nth < 10000);
    return nth - 1;
}

/* As one that has a small share of a machine and asks for the most that the contract allows. */
static void refuse_the_largest(void) {
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}, tight = {512u << 20, RLIM_INFINITY};
    pr_config most = config(1u << 20, 1u << 24);
    most.max_waits = most.max_ports = 1u << 24;
    most.max_profiles = most.max_watches = 1u << 20;
    pr_ctx ctx = untouched;
    OK(setrlimit(RLIMIT_AS, &tight));
    const uint64_t taken = heap_taken, given = heap_given;
    CHECK_EQ(api->create(&most, &ctx), PR_ENOMEM);
    CHECK_EQ(ctx, untouched);
    CHECK(heap_taken - taken >= heap_given - given);
    const pr_config small = config(16, 16);
    OK(api->create(&small, &ctx));
    use(ctx);
    OK(api->destroy(ctx));
    OK(setrlimit(RLIMIT_AS, &none));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    load_plugin(argv[1]);
    const pr_config small = config(16, 16), usual = config(0, 0);
    for (int rest = 0; rest < 2; rest++) {
        const uint64_t of_small = refuse_each(&small, rest), of_usual = refuse_each(&usual, rest);
        printf("%s refused: %llu blocks of a small context, %llu of a usual one\n", rest ? "each from the nth on" : "the nth",
               (unsigned long long)of_small, (unsigned long long)of_usual);
    }
    refuse_the_largest();
    printf("the largest refused where 512 MiB are the most\n");
    return 0;
}
