/* Runs the C blocks of docs/abi.md, which are in page.c: a scheduler that starts, places, stops and asks. */
#include "page.c"

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #what), exit(1)))

static uint32_t told;

static void count(const pr_change *change) { told += change->kind == PR_CH_UPSERT; }

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *why = load(argv[1]);
    if (why != NULL) fprintf(stderr, "%s\n", why);
    CHECK(why == NULL);

    const char *names[70];
    static char spelled[70][8];
    for (int h = 0; h < 70; h++) {
        snprintf(spelled[h], sizeof spelled[h], "n%d", h);
        names[h] = spelled[h];
    }
    CHECK(start(names, 70) == PR_OK);

    /* A log with one record that the plugin is told of. */
    struct record before = {.who = {.job = 1, .profile = web, .host = 3}, .numbers = {21000, 21001, 21002, 21003, 21004}};
    CHECK(restore(&before, 1, 1000) == PR_OK);
    pr_alloc first;
    CHECK(api->grant_find(ctx, &before.who, &first) == PR_OK);

    struct record placed;
    pr_alloc id;
    CHECK(place(2, 1000, &placed, &id) == PR_OK);
    CHECK(placed.who.host == 0 && placed.numbers[0] == 20004 && placed.numbers[1] == 20000 && placed.numbers[4] == 20003);

    /* Where clients go. */
    pr_watch watch;
    int32_t fd = -1;
    int watches = api->watch_open(ctx, text(""), 0, &watch, &fd) == PR_OK;
    pr_addr address = {.ip = {10, 0, 0, 1}, .family = 4};
    CHECK(api->report_addr(ctx, 0, 1, &address, 1) == PR_OK);
    pr_ready ready = {.id = id, .seq = 1, .run = 1, .state = PR_E_READY};
    CHECK(api->report_ready(ctx, &ready, 1, NULL) == PR_OK);
    list("web.alice");
    if (watches) {
        struct pollfd wake = {.fd = fd, .events = POLLIN};
        CHECK(poll(&wake, 1, 10000) == 1);
        CHECK(changes(watch, count) == PR_RESET || told > 0);
        CHECK(api->watch_close(watch) == PR_OK);
    }

    char *block = environment(id);
    CHECK(block != NULL && strstr(block, "PORTREEVE_PORT_HTTP=20004") == block);
    free(block);

    /* Hosts beyond the first word, in a bitmap of Slurm: two words of its own, then the bits. */
    CHECK(api->host_state(ctx, 69, PR_HOST_DRAINED) == PR_OK);
    int64_t bitmap[4] = {0x42434445, 70, -1, -1};
    pr_txn txn;
    CHECK(api->txn_begin(ctx, 0, 2000, &txn) == PR_OK);
    pr_need need = {.profile = web};
    CHECK(leave_fitting(txn, &need, bitmap, 70) == 69);
    CHECK(bitmap[0] == 0x42434445 && bitmap[1] == 70 && bitmap[2] == -1 && bitmap[3] == 0x1f);
    tell_why(txn, 70);
    CHECK(api->abort_(txn) == PR_OK);

    CHECK(would_fit(first, 3, 2000, 100000) == 1);
    CHECK(stop(id) == PR_OK);
    CHECK(gone(id, 3000) == PR_OK);
    CHECK(pump_and_wait_for(3000) == 60000);
    CHECK(api->destroy(ctx) == PR_OK);
    return 0;
}
