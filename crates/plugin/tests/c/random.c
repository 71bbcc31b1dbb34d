#include "test.h"
const struct test random_tests[] = {{NULL, NULL}};
