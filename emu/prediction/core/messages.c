/* Messages of ranks as gloo moves them, over streams that share links max-min fairly.
 *
 * A message is three frames: who posts a receive writes "ready" into its stream to the
 * sender; a sender announces its send, and writes the data when "ready" has come, at once
 * where it has come already (gloo, tcp/pair.cc). A stream has one order, so notices wait
 * behind data, but where contexts have them go beside. Of all streams the first frames share the links. Nothing is known
 * beforehand: operations are submitted while time goes on. */
#include "inline.h"
#include "messages.h"

enum { ANNOUNCE, READY, DATA };

static const Queue EMPTY = {NONE, NONE};

static inline int64_t take(Pool *pool) { return pool->entry[pool->used++]; }

static inline void give_back(Pool *pool, int64_t entry) { pool->entry[--pool->used] = entry; }

static void append(Pool *pool, Queue *queue, int64_t entry)
{
    pool->next[entry] = NONE;
    if (queue->first == NONE)
        queue->first = entry;
    else
        pool->next[queue->last] = entry;
    queue->last = entry;
}

static int64_t pop(Pool *pool, Queue *queue)
{
    int64_t entry = queue->first;
    queue->first = pool->next[entry];
    return entry;
}

/* What is on its way, as a heap. */

/* Ties go by stream, and in a stream in its order. */
static inline bool is_before(const Coming *a, const Coming *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    return a->stream < b->stream || (a->stream == b->stream && a->order < b->order);
}

static void push_coming(Network *network, double time, int64_t stream, int64_t frame,
                        int64_t post)
{
    Coming coming = {time, network->order++, stream, frame, post};
    Coming *heap = network->coming;
    int64_t place = network->coming_count++;
    while (place > 0 && is_before(&coming, &heap[(place - 1) / 2])) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = coming;
}

static Coming pop_coming(Network *network)
{
    Coming *heap = network->coming, first = heap[0], last = heap[--network->coming_count];
    int64_t place = 0, child = 1;
    while (child < network->coming_count) {
        if (child + 1 < network->coming_count && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &last))
            break;
        heap[place] = heap[child];
        place = child;
        child = 2 * place + 1;
    }
    heap[place] = last;
    return first;
}

/* Rates. */

static void mark_dirty(Network *network, int64_t link)
{
    if (!network->link[link].is_dirty)
        network->dirty[network->dirty_count++] = link;
    network->link[link].is_dirty = true;
}

/* Give a link another capacity from now on, bytes per second; 0 cuts it. */
void set_link(Network *network, int64_t link, double capacity)
{
    network->link[link].capacity = capacity;
    mark_dirty(network, link);
}

/* Count a stream among those that share the links it crosses. */
static void make_busy(Network *network, int64_t number)
{
    Stream *stream = &network->stream[number];
    stream->place = network->busy_count;
    network->busy[network->busy_count++] = number;
    for (int64_t hop = stream->first_hop; hop < stream->first_hop + stream->hops; hop++) {
        int64_t link = network->hop_link[hop], next = network->link[link].first_hop;
        network->hop_before[hop] = NONE;
        network->hop_next[hop] = next;
        if (next != NONE)
            network->hop_before[next] = hop;
        network->link[link].first_hop = hop;
        mark_dirty(network, link);
    }
}

static void make_idle(Network *network, int64_t number)
{
    Stream *stream = &network->stream[number];
    int64_t last = network->busy[--network->busy_count];
    network->busy[stream->place] = last;
    network->stream[last].place = stream->place;
    stream->place = NONE;
    for (int64_t hop = stream->first_hop; hop < stream->first_hop + stream->hops; hop++) {
        int64_t next = network->hop_next[hop], before = network->hop_before[hop];
        if (next != NONE)
            network->hop_before[next] = before;
        if (before != NONE)
            network->hop_next[before] = next;
        else
            network->link[network->hop_link[hop]].first_hop = next;
        mark_dirty(network, network->hop_link[hop]);
    }
}

/* List the busy streams that share links with those that changed, and with each other;
 * return how many. The links join the dirty ones. */
static int64_t list_shared(Network *network)
{
    int64_t count = 0;
    for (int64_t i = 0; i < network->dirty_count; i++) {
        Link *link = &network->link[network->dirty[i]];
        link->left = link->capacity;
        link->rising = 0;
        for (int64_t hop = link->first_hop; hop != NONE; hop = network->hop_next[hop]) {
            Stream *stream = &network->stream[network->hop_stream[hop]];
            link->rising++;
            if (stream->is_shared)
                continue;
            stream->is_shared = true;
            network->shared[count++] = network->hop_stream[hop];
            for (int64_t other = 0; other < stream->hops; other++)
                mark_dirty(network, network->hop_link[stream->first_hop + other]);
        }
    }
    return count;
}

/* Find the links that are full first as all rates rise; return the rate at which. */
static double find_full(Network *network)
{
    double least = INFINITY;
    for (int64_t i = 0; i < network->dirty_count; i++) {
        Link *link = &network->link[network->dirty[i]];
        if (link->rising > 0)
            least = smaller(least, link->left / (double)link->rising);
    }
    for (int64_t i = 0; i < network->dirty_count; i++) {
        Link *link = &network->link[network->dirty[i]];
        link->taken = 0;
        link->is_full = link->rising > 0
                        && link->left / (double)link->rising <= least * (1.0 + TIE);
    }
    return least;
}

static bool crosses_full(const Network *network, const Stream *stream)
{
    for (int64_t hop = stream->first_hop; hop < stream->first_hop + stream->hops; hop++)
        if (network->link[network->hop_link[hop]].is_full)
            return true;
    return false;
}

/* Set rates: all rise together until a link of theirs is full (progressive filling, Bertsekas
 * and Gallager, Data Networks, section 6.5). Only those that may have changed. */
static void share_links(Network *network)
{
    int64_t count = list_shared(network);
    while (count > 0) {
        double rate = find_full(network);
        int64_t rising = 0;
        for (int64_t i = 0; i < count; i++) {
            Stream *stream = &network->stream[network->shared[i]];
            if (!crosses_full(network, stream)) {
                network->shared[rising++] = network->shared[i];
                continue;
            }
            stream->rate = rate;
            stream->is_shared = false;
            for (int64_t hop = 0; hop < stream->hops; hop++)
                network->link[network->hop_link[stream->first_hop + hop]].taken++;
        }
        count = rising;
        for (int64_t i = 0; i < network->dirty_count; i++) {
            Link *link = &network->link[network->dirty[i]];
            link->rising -= link->taken;
            link->left = larger(link->left - rate * (double)link->taken, 0.0);
        }
    }
    for (int64_t i = 0; i < network->dirty_count; i++)
        network->link[network->dirty[i]].is_dirty = false;
    network->dirty_count = 0;
}

/* Streams. */

static void send_off(Network *network, int64_t number, int64_t frame)
{
    double there = network->now + network->stream[number].latency;
    push_coming(network, there, number, frame, NONE);
}

/* Append a frame to a stream; return where in the stream it ends. */
static double write_frame(Network *network, int64_t number, int64_t kind, int64_t slot,
                          double size)
{
    Stream *stream = &network->stream[number];
    const Context *context = &network->context[stream->context];
    int64_t frame = take(&network->frames);
    network->frame[frame] = (Frame){kind, slot, context->header + size};
    if (context->is_offloaded && kind != DATA) {
        send_off(network, number, frame);
        return stream->written;
    }

    stream->written += context->header + size;
    if (stream->hops == 0) {
        stream->served = stream->written;
        send_off(network, number, frame);
        return stream->written;
    }

    append(&network->frames, &stream->frames, frame);
    if (stream->place == NONE) {
        stream->left = network->frame[frame].size;
        make_busy(network, number);
    }
    return stream->written;
}

/* Have a send be over when the kernel has it whole. */
static void mark_send(Network *network, int64_t number, int64_t post, double mark)
{
    Stream *stream = &network->stream[number];
    network->post[post].mark = mark;
    if (mark <= stream->served)
        push_coming(network, network->now, number, NONE, post);
    else
        append(&network->posts, &stream->marks, post);
}

/* Carry bytes of a stream; return true where it is idle then. */
static bool serve(Network *network, int64_t number, double bytes)
{
    Stream *stream = &network->stream[number];
    stream->left -= bytes;
    stream->served += bytes;
    if (!network->context[stream->context].is_offloaded) {
        network->moved[stream->sending_rank] += bytes;
        network->moved[stream->receiving_rank] += bytes;
    }

    /* What takes less than an instant, as a time can be told. */
    double rounding = TIE * (stream->written + stream->rate * network->now);
    while (stream->marks.first != NONE
           && network->post[stream->marks.first].mark <= stream->served + rounding)
        push_coming(network, network->now, number, NONE,
                    pop(&network->posts, &stream->marks));

    while (stream->frames.first != NONE && stream->left <= rounding) {
        send_off(network, number, pop(&network->frames, &stream->frames));
        stream->left = stream->frames.first == NONE
                           ? 0.0
                           : network->frame[stream->frames.first].size;
    }
    return stream->frames.first == NONE;
}

/* Bytes until the first frame of a stream ends, or the kernel has a send whole. */
static double next_stop(const Network *network, const Stream *stream)
{
    if (stream->marks.first == NONE)
        return stream->left;
    return smaller(stream->left, network->post[stream->marks.first].mark - stream->served);
}

/* When something next leaves or is there, infinity if nothing will. */
double next_event(Network *network)
{
    share_links(network);
    double earliest = network->coming_count > 0 ? network->coming[0].time : INFINITY;
    for (int64_t i = 0; i < network->busy_count; i++) {
        const Stream *stream = &network->stream[network->busy[i]];
        if (stream->rate > 0.0)
            earliest = smaller(earliest,
                               network->now + next_stop(network, stream) / stream->rate);
    }
    return earliest;
}

/* Messages. */

static inline int64_t stream_between(const Network *network, int64_t context, int64_t sender,
                                     int64_t receiver)
{
    const Context *members = &network->context[context];
    return members->first_stream + sender * members->members + receiver;
}

static inline Member *member_of(Network *network, int64_t context, int64_t member)
{
    return &network->member[network->context[context].first_member + member];
}

/* The messages of a slot of a stream; new where nothing is under way. */
static Way *way_of(Network *network, int64_t number, int64_t slot)
{
    Stream *stream = &network->stream[number];
    for (int64_t way = stream->first_way; way != NONE; way = network->ways.next[way])
        if (network->way[way].slot == slot)
            return &network->way[way];

    int64_t way = take(&network->ways);
    network->way[way] = (Way){.slot = slot, .sends = EMPTY, .receives = EMPTY};
    network->ways.next[way] = stream->first_way;
    stream->first_way = way;
    return &network->way[way];
}

/* Forget the messages of a slot where nothing is under way. */
static void forget_way(Network *network, int64_t number, const Way *way)
{
    bool is_idle = way->ready == 0 && way->announced == 0 && way->sends.first == NONE
                   && way->receives.first == NONE;
    if (!is_idle)
        return;
    int64_t entry = way - network->way, *link = &network->stream[number].first_way;
    while (*link != entry)
        link = &network->ways.next[*link];
    *link = network->ways.next[entry];
    give_back(&network->ways, entry);
}

static void write_data(Network *network, int64_t number, int64_t post)
{
    const Post *send = &network->post[post];
    const Operation *operation = &network->operation[send->operation];
    if (operation->place != NULL)
        operation->place[send->number] = ++network->data_count;
    double end = write_frame(network, number, DATA, send->slot, send->size);
    double buffer = network->context[network->stream[number].context].buffer;
    mark_send(network, number, post, end - buffer);
}

static void post_send(Network *network, int64_t number, int64_t post)
{
    int64_t slot = network->post[post].slot;
    write_frame(network, number, ANNOUNCE, slot, 0.0);
    Way *way = way_of(network, number, slot);
    if (way->ready > 0) {
        way->ready--;
        write_data(network, number, post);
    } else {
        append(&network->posts, &way->sends, post);
    }
    forget_way(network, number, way);
}

/* Expect the data of a receive on a stream: its notice goes the other way. */
static void expect(Network *network, int64_t number, Way *way, int64_t post)
{
    const Stream *stream = &network->stream[number];
    way->announced--;
    append(&network->posts, &way->receives, post);
    network->operation[network->post[post].operation].peer = stream->sender;
    int64_t back = stream_between(network, stream->context, stream->receiver, stream->sender);
    write_frame(network, back, READY, way->slot, 0.0);
}

/* Have the first receive from anyone be from a sender that nobody expects. */
static void match_open(Network *network, int64_t number, Way *way)
{
    const Stream *stream = &network->stream[number];
    Queue *open = &member_of(network, stream->context, stream->receiver)->open;
    int64_t before = NONE, post = open->first;
    while (post != NONE && network->post[post].slot != way->slot) {
        before = post;
        post = network->posts.next[post];
    }
    if (post == NONE || way->announced <= 0)
        return;

    int64_t next = network->posts.next[post];
    if (before == NONE)
        open->first = next;
    else
        network->posts.next[before] = next;
    if (open->last == post)
        open->last = before;
    expect(network, number, way, post);
}

/* Post a receive from whoever sends first. */
static void post_open(Network *network, const Operation *operation, int64_t post)
{
    int64_t context = operation->context;
    append(&network->posts, &member_of(network, context, operation->member)->open, post);
    for (int64_t sender = 0; sender < network->context[context].members; sender++) {
        int64_t number = stream_between(network, context, sender, operation->member);
        Way *way = way_of(network, number, operation->slot);
        match_open(network, number, way);
        forget_way(network, number, way);
    }
}

/* Operations. */

/* Go on with an operation until it waits for what is not over; return true at its end. */
static bool resume(Network *network, int64_t number)
{
    Operation *operation = &network->operation[number];
    operation->awaited = NONE;
    for (; operation->at < operation->steps; operation->at++) {
        const int64_t *step = operation->step + STEP_FIELDS * operation->at;
        int64_t kind = step[0], peer = step[1];
        if (kind == AWAIT) {
            if (!operation->over[peer]) {
                operation->awaited = peer;
                return false;
            }
            continue;
        }

        int64_t post = take(&network->posts), slot = operation->slot;
        network->post[post] = (Post){number, operation->posts++, slot, (double)step[2], 0.0};
        network->unposted--;
        if (kind == POST_SEND) {
            post_send(network,
                      stream_between(network, operation->context, operation->member, peer),
                      post);
        } else if (peer == NONE) {
            post_open(network, operation, post);
        } else {
            int64_t stream = stream_between(network, operation->context, peer,
                                            operation->member);
            expect(network, stream, way_of(network, stream, slot), post);
        }
    }
    network->done[network->done_count++] = (Done){operation->number, operation->peer};
    give_back(&network->operations, number);
    return true;
}

/* Have free workers of a member begin what is queued. */
static void begin_queued(Network *network, Member *member)
{
    while (member->queued.first != NONE && member->running < network->workers) {
        const Operation *first = &network->operation[member->queued.first];
        if (first->is_barrier && member->running > 0)
            return;
        member->running++;
        if (resume(network, pop(&network->operations, &member->queued)))
            member->running--;
    }
}

/* Begin an operation, or queue it for a worker. The pools have room for all it posts. */
void submit(Network *network, const Operation *operation)
{
    int64_t number = take(&network->operations);
    network->operation[number] = *operation;
    if (!operation->uses_worker) {
        resume(network, number);
        return;
    }
    Member *member = member_of(network, operation->context, operation->member);
    append(&network->operations, &member->queued, number);
    begin_queued(network, member);
}

/* Take in that a send or receive is over. */
static void end_post(Network *network, int64_t entry)
{
    Post post = network->post[entry];
    Operation *operation = &network->operation[post.operation];
    give_back(&network->posts, entry);
    operation->over[post.number] = true;
    if (operation->awaited != post.number)
        return;
    bool uses_worker = operation->uses_worker;
    Member *member = member_of(network, operation->context, operation->member);
    if (resume(network, post.operation) && uses_worker) {
        member->running--;
        begin_queued(network, member);
    }
}

/* Take in a frame that is there. */
static void take_in(Network *network, int64_t number, Frame frame)
{
    const Stream *stream = &network->stream[number];
    int64_t way_number = number;
    if (frame.kind == READY)
        way_number = stream_between(network, stream->context, stream->receiver,
                                    stream->sender);
    if (!network->context[stream->context].is_offloaded) {
        network->moved_frames[stream->sending_rank]++;
        network->moved_frames[stream->receiving_rank]++;
    }

    Way *way = way_of(network, way_number, frame.slot);
    int64_t over = NONE;
    if (frame.kind == ANNOUNCE) {
        way->announced++;
        match_open(network, number, way);
    } else if (frame.kind == DATA) {
        over = pop(&network->posts, &way->receives);
    } else if (way->sends.first == NONE) {
        way->ready++;
    } else {
        write_data(network, way_number, pop(&network->posts, &way->sends));
    }
    forget_way(network, way_number, way);
    if (over != NONE)
        end_post(network, over);
}

/* Go on to a time, not beyond `next_event`, and take in what is there by then. */
void go_to_time(Network *network, double time)
{
    share_links(network);
    double passed = time - network->now;
    network->now = time;
    for (int64_t i = network->busy_count - 1; i >= 0; i--) {
        int64_t number = network->busy[i];
        if (serve(network, number, network->stream[number].rate * passed)) {
            network->stream[number].served = network->stream[number].written;
            make_idle(network, number);
        }
    }

    double instant = time * (1.0 + TIE);
    while (network->coming_count > 0 && network->coming[0].time <= instant) {
        Coming coming = pop_coming(network);
        if (coming.frame == NONE) {
            end_post(network, coming.post);
            continue;
        }
        Frame frame = network->frame[coming.frame];
        give_back(&network->frames, coming.frame);
        take_in(network, coming.stream, frame);
    }
}

/* Go on to the first end of an operation, or as far as something happens up to a time. */
void go_on_until(Network *network, double time)
{
    while (network->done_count == 0) {
        double next = next_event(network);
        if (next > time || next == INFINITY)
            return;
        go_to_time(network, next);
    }
}
