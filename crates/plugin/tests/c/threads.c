#include "test.h"
const struct test threads_tests[] = {{NULL, NULL}};
