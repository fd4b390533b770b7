#include <stdbool.h>
#include <stdint.h>
#include "core.h"
#include "messages.h"
