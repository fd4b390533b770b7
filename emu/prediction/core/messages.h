/* Messages of ranks over streams of bytes: messages.c. Owner of all arrays: Python, which
 * makes pools longer before it submits an operation (emu/virtual/message_network.py). */
enum { NONE = -1 };
/* What a rank does in an operation. */
enum { POST_SEND, POST_RECEIVE, AWAIT, STEP_FIELDS };

/* Numbers of entries: the first `used` of `entry` are taken, the others free. `next`: per
 * entry, that behind it in its queue. */
typedef struct {
    int64_t used;
    int64_t *entry, *next;
} Pool;

/* Entries of a pool, first in, first out; NONE without any. */
typedef struct {
    int64_t first, last;
} Queue;

/* One way of a connection between two members of a context. */
typedef struct {
    int64_t first_hop, hops;   /* of `hop_link`; none within a machine */
    int64_t context, sender, receiver;
    int64_t sending_rank, receiving_rank; /* the same two, of all ranks */
    int64_t place;             /* in `busy`; NONE where nothing is to be carried */
    int64_t first_way;         /* of what is under way, by slot */
    Queue frames, marks;       /* marks: sends that the kernel has not whole */
    double latency;            /* seconds */
    double left;               /* bytes of the first frame */
    double rate;               /* bytes per second, of now */
    double written, served;    /* bytes of all frames so far */
    bool is_shared;            /* while rates are set: its own is to come */
} Stream;

/* A header, with the data of a message or none. */
typedef struct {
    int64_t kind, slot;
    double size;               /* bytes, the header's included */
} Frame;

/* A posted send or receive. */
typedef struct {
    int64_t operation, number; /* the number of the post in it */
    int64_t slot;
    double size;               /* bytes of data */
    double mark;               /* of a send: where the kernel has it whole */
} Post;

/* Messages of one slot from one member to another. */
typedef struct {
    int64_t slot;
    int64_t ready;             /* notices of the receiver that the sender has */
    int64_t announced;         /* sends that the receiver knows of, less its receives */
    Queue sends;               /* whose receiver is not known to be ready */
    Queue receives;            /* whose data are not there */
} Way;

/* The part of one member in one call. */
typedef struct {
    int64_t number;            /* as Python calls it */
    int64_t context, member, slot;
    const int64_t *step;       /* (steps, STEP_FIELDS): kind, peer (NONE: any) and bytes; of
                                  AWAIT the number of a post */
    int64_t steps, at, posts;
    int64_t awaited;           /* post that it waits for, or NONE */
    int64_t peer;              /* of its last message */
    uint8_t *over;             /* per post: it is over */
    int64_t *place;            /* per post: place of a send among all whose data were written,
                                  from 1; NULL where nobody asks */
    bool uses_worker, is_barrier;
} Operation;

typedef struct {
    int64_t running;           /* operations that its workers carry out */
    Queue queued;              /* operations without a worker */
    Queue open;                /* receives from whoever sends first */
} Member;

typedef struct {
    int64_t first_stream;      /* streams go by sender, then receiver */
    int64_t first_member, members;
    double header, buffer;     /* bytes of a frame's header, and of a sender's buffer */
    bool is_offloaded;         /* notices go beside the streams, and no CPU is counted */
} Context;

typedef struct { /* what will be there: a frame, or a send that the kernel has whole */
    double time;
    int64_t order, stream, frame, post; /* the frame or the post is NONE */
} Coming;

typedef struct { /* an operation that is over */
    int64_t number, peer;
} Done;

typedef struct { /* what is known of a link while rates are set */
    double capacity, left;     /* bytes per second */
    int64_t first_hop;         /* of a busy stream */
    int64_t rising, taken;
    bool is_dirty, is_full;
} Link;

typedef struct {
    double now;                /* seconds */
    int64_t workers;           /* operations at once, per member */
    int64_t order, unposted;   /* posts that operations have yet to make */
    int64_t data_count;        /* sends whose data were written, of those that have places */
    int64_t busy_count, coming_count, done_count, dirty_count;
    Pool frames, posts, ways, operations;
    Stream *stream;
    Context *context;
    Member *member;
    Link *link;
    Frame *frame;
    Post *post;
    Way *way;
    Operation *operation;
    Coming *coming;            /* heap by time, then order */
    Done *done;
    int64_t *busy;             /* streams with something to carry */
    int64_t *shared;           /* streams whose rates are set */
    int64_t *dirty;            /* links whose streams have changed */
    int64_t *hop_link, *hop_stream, *hop_next, *hop_before; /* the two last: busy streams
                                  over the same link */
    double *moved;             /* per rank: bytes that it sent and took */
    int64_t *moved_frames;     /* per rank */
} Network;

void set_link(Network *network, int64_t link, double capacity);
void submit(Network *network, const Operation *operation);
double next_event(Network *network);
void go_to_time(Network *network, double time);
void go_on_until(Network *network, double time);
