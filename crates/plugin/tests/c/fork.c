#include "test.h"
const struct test fork_tests[] = {{NULL, NULL}};
