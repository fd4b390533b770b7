/* What Python defines for C to call: an `Ask` (emu/scheduling/own_rates.py). */
extern "Python" void ask_rule(void *own, const Question *question);
