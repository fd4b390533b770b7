/* What Python defines for C to call: an `Ask` (emu/prediction/scheduling/policies.py). */
extern "Python" void ask_rule(void *own, const Question *question);
