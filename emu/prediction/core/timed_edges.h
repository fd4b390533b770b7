/* Ends of edges of timed tasks, for what runs the tasks: timed_edges.c. */
#pragma once
#include "inline.h"

bool receive_all(TimedProcess *p, int64_t place);
void send_payload(TimedProcess *p, int64_t place, int64_t iteration, double now);
void go_on_writing(TimedProcess *p, int64_t place);
void ring_senders(TimedProcess *p, double now);
void take_payload(TimedProcess *p, Inlet *in, int64_t iteration);
void give_back(TimedProcess *p, Inlet *in, int64_t end);
bool has_room(TimedProcess *p, int64_t size);
uint8_t *next_note(TimedProcess *p, int64_t size);
void ask_python(int64_t *list, int64_t *count, int64_t place);

/* Kinds of what is watched: in the upper half of the data of an event, from its ninth bit on
 * the number of the process. */
enum { COMES, GOES, RINGS, CALLS, ORDERS, KIND_BITS = 8 };
bool watch(TimedProcess *p, int32_t fd, int32_t kind, int64_t place);
void stop_watching(TimedProcess *p, int32_t fd);
