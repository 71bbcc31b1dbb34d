#include "test.h"
const struct test sizes_tests[] = {{NULL, NULL}};
