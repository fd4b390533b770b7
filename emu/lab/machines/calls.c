/* Notes of the socket calls of a lab's program, preloaded into it.

   A call on a TCP connection to another host, and a wait for anything, is one note in a
   file that is mapped into memory: nothing is written while the program runs. The file
   is made with the first note, in the folder of EMU_CALLS. The program goes on as
   before where it cannot be. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The rest of a PART follows with the next send of its connection. */
enum kind { SEND = 1, RECEIVE = 2, WAIT = 3, PART = 4 };

/* As NOTE in call_notes.py reads it; a wait has no connection. */
struct note {
  uint64_t begin, end; /* nanoseconds since 1970, as packets are stamped */
  int64_t bytes;
  uint32_t thread, peer;
  uint16_t kind, port, peer_port, host; /* host: the lower half of its own address */
};

struct file {
  _Atomic uint64_t count; /* of all notes: those beyond MOST are lost */
  uint64_t unused[4];
  struct note notes[];
};

#define MOST (1u << 20) /* 40 MB, of which only what is written takes room */
#define DESCRIPTORS 65536
#define OFTEN 3 /* questions in vain before one is answered */
#define SHORTEST 5000 /* nanoseconds: a shorter wait was none */

struct end {
  _Atomic uint8_t state; /* UNKNOWN, OTHER, or CONNECTED */
  uint16_t port, peer_port, host;
  uint32_t peer;
};
enum { UNKNOWN, OTHER, CONNECTED };

static struct end ends[DESCRIPTORS];
static struct file *_Atomic notes;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int is_off, has_connection;
static __thread uint32_t thread;
/* When this thread first asked in vain since its last note, and how often it has: from
   then on it waits. */
static __thread uint64_t idle_since, idle_until;
static __thread unsigned asked;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void forget_parent(void) {
  /* A child notes in a file of its own: its process id is another. */
  atomic_store(&notes, NULL);
  thread = 0;
  idle_since = 0;
  pthread_mutex_init(&making, NULL);
}

static struct file *open_notes(void) {
  const char *folder = getenv("EMU_CALLS");
  if (!folder) return NULL;
  char path[4096];
  const char *program = getenv("EMU_PROGRAM");
  int length = snprintf(path, sizeof path, "%s/%d.%llx.%s", folder, (int)getpid(),
                        (unsigned long long)now(), program ? program : "");
  if (length < 0 || (size_t)length >= sizeof path) return NULL;
  int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return NULL;
  size_t size = sizeof(struct file) + MOST * sizeof(struct note);
  void *memory = MAP_FAILED;
  if (ftruncate(file, (off_t)size) == 0)
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  syscall(SYS_close, file);
  return memory == MAP_FAILED ? NULL : memory;
}

static struct file *find_notes(void) {
  struct file *found = atomic_load_explicit(&notes, memory_order_acquire);
  if (found || atomic_load(&is_off)) return found;
  pthread_mutex_lock(&making);
  found = atomic_load(&notes);
  if (!found) {
    static int is_watched;
    if (!is_watched) pthread_atfork(NULL, NULL, forget_parent);
    is_watched = 1;
    found = open_notes();
    if (!found) atomic_store(&is_off, 1);
    atomic_store_explicit(&notes, found, memory_order_release);
  }
  pthread_mutex_unlock(&making);
  return found;
}

static void put(enum kind kind, const struct end *end, uint64_t begin, uint64_t until,
                int64_t bytes) {
  int error = errno;
  struct file *file = find_notes();
  if (file) {
    if (!thread) thread = (uint32_t)syscall(SYS_gettid);
    uint64_t place = atomic_fetch_add_explicit(&file->count, 1, memory_order_relaxed);
    if (place < MOST) {
      struct note note = {.begin = begin, .end = until, .bytes = bytes, .thread = thread,
                          .kind = (uint16_t)kind};
      if (end) {
        note.peer = end->peer;
        note.port = end->port;
        note.peer_port = end->peer_port;
        note.host = end->host;
      }
      file->notes[place] = note;
    }
  }
  errno = error;
}

static void put_idle(enum kind next) {
  /* Who sends after one timeout has waited for that, as in sleep. */
  int is_sleep = next != RECEIVE && asked < OFTEN;
  if (idle_since && !is_sleep && idle_until > idle_since + SHORTEST)
    put(WAIT, NULL, idle_since, idle_until, 0);
  idle_since = 0;
  asked = 0;
}

static void ask_in_vain(uint64_t begin, uint64_t until) {
  if (!idle_since) idle_since = begin;
  idle_until = until;
  asked++;
}

/* Four bytes of an IPv4 address, also where it is written as one of IPv6; else 0. */
static uint32_t address_of(const struct sockaddr_storage *name, uint16_t *port) {
  if (name->ss_family == AF_INET) {
    const struct sockaddr_in *plain = (const void *)name;
    *port = ntohs(plain->sin_port);
    return ntohl(plain->sin_addr.s_addr);
  }
  if (name->ss_family != AF_INET6) return 0;
  const struct sockaddr_in6 *wide = (const void *)name;
  if (!IN6_IS_ADDR_V4MAPPED(&wide->sin6_addr)) return 0;
  uint32_t address;
  memcpy(&address, wide->sin6_addr.s6_addr + 12, sizeof address);
  *port = ntohs(wide->sin6_port);
  return ntohl(address);
}

static const struct end *look_at(int descriptor) {
  if (descriptor < 0 || descriptor >= DESCRIPTORS) return NULL;
  struct end *end = &ends[descriptor];
  uint8_t state = atomic_load_explicit(&end->state, memory_order_acquire);
  if (state != UNKNOWN) return state == CONNECTED ? end : NULL;

  int error = errno, type = 0;
  socklen_t size = sizeof type;
  struct sockaddr_storage name;
  state = OTHER;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
      type == SOCK_STREAM) {
    size = sizeof name;
    if (getpeername(descriptor, (struct sockaddr *)&name, &size) != 0)
      state = UNKNOWN; /* it may be connected later */
    else if ((end->peer = address_of(&name, &end->peer_port)) >> 24 != 127 && end->peer) {
      size = sizeof name;
      if (getsockname(descriptor, (struct sockaddr *)&name, &size) == 0) {
        end->host = (uint16_t)address_of(&name, &end->port);
        state = CONNECTED;
      }
    }
  }
  if (state == CONNECTED) atomic_store(&has_connection, 1);
  atomic_store_explicit(&end->state, state, memory_order_release);
  errno = error;
  return state == CONNECTED ? end : NULL;
}

static void forget(int descriptor) {
  if (descriptor >= 0 && descriptor < DESCRIPTORS)
    atomic_store(&ends[descriptor].state, UNKNOWN);
}

static size_t sum(const struct iovec *parts, size_t count) {
  size_t bytes = 0;
  for (size_t part = 0; part < count; part++) bytes += parts[part].iov_len;
  return bytes;
}

static void note_call(enum kind kind, const struct end *end, uint64_t begin,
                      int64_t bytes, size_t wanted) {
  uint64_t until = now();
  if (bytes < 0) { /* nothing was there, or no room */
    if (errno == EAGAIN && kind == RECEIVE) ask_in_vain(begin, until);
    return;
  }
  put_idle(kind);
  if (kind == SEND && (size_t)bytes < wanted) kind = PART;
  put(kind, end, begin, until, bytes);
}

static void note_wait(uint64_t begin, int is_over) {
  if (!atomic_load_explicit(&has_connection, memory_order_relaxed)) return;
  uint64_t until = now();
  if (!is_over) {
    ask_in_vain(begin, until);
    return;
  }
  if (idle_since) begin = idle_since;
  idle_since = 0;
  asked = 0;
  if (until > begin + SHORTEST) put(WAIT, NULL, begin, until, 0);
}

#define REAL(name)                                                    \
  static __typeof__(&name) _Atomic real_;                             \
  __typeof__(&name) real = atomic_load_explicit(&real_, memory_order_relaxed); \
  if (!real) atomic_store(&real_, real = (__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A call that moves bytes of a descriptor, of those wanted. */
#define MOVES(kind, name, descriptor, wanted, parameters, arguments) \
  __attribute__((visibility("default"))) ssize_t name parameters { \
    REAL(name);                                               \
    const struct end *end = look_at(descriptor);              \
    if (!end) return real arguments;                          \
    uint64_t begin = now();                                   \
    ssize_t bytes = real arguments;                           \
    note_call(kind, end, begin, bytes, wanted);               \
    return bytes;                                             \
  }

/* A call that waits; it is over where `reached` is true of its result. */
#define WAITS(type, name, parameters, arguments, reached)    \
  __attribute__((visibility("default"))) type name parameters { \
    REAL(name);                                              \
    uint64_t begin = now();                                  \
    type result = real arguments;                            \
    note_wait(begin, reached);                               \
    return result;                                           \
  }

/* What is peeked at is read a second time. */
#define PEEKED(flags) ((flags) & MSG_PEEK ? WAIT : RECEIVE)

MOVES(SEND, send, s, n, (int s, const void *b, size_t n, int f), (s, b, n, f))
MOVES(SEND, sendto, s, n,
      (int s, const void *b, size_t n, int f, const struct sockaddr *a, socklen_t l),
      (s, b, n, f, a, l))
MOVES(SEND, sendmsg, s, sum(m->msg_iov, m->msg_iovlen), (int s, const struct msghdr *m, int f), (s, m, f))
MOVES(SEND, write, s, n, (int s, const void *b, size_t n), (s, b, n))
MOVES(SEND, writev, s, sum(v, (size_t)n), (int s, const struct iovec *v, int n), (s, v, n))
MOVES(SEND, sendfile, s, n, (int s, int from, off_t *o, size_t n), (s, from, o, n))
MOVES(PEEKED(f), recv, s, 0, (int s, void *b, size_t n, int f), (s, b, n, f))
MOVES(PEEKED(f), recvfrom, s, 0,
      (int s, void *b, size_t n, int f, struct sockaddr *a, socklen_t *l),
      (s, b, n, f, a, l))
MOVES(PEEKED(f), recvmsg, s, 0, (int s, struct msghdr *m, int f), (s, m, f))
MOVES(RECEIVE, read, s, 0, (int s, void *b, size_t n), (s, b, n))
MOVES(RECEIVE, readv, s, 0, (int s, const struct iovec *v, int n), (s, v, n))

WAITS(int, poll, (struct pollfd *p, nfds_t n, int t), (p, n, t), result > 0)
WAITS(int, ppoll,
      (struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *s),
      (p, n, t, s), result > 0)
WAITS(int, select, (int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t),
      (n, r, w, e, t), result > 0)
WAITS(int, epoll_wait, (int d, struct epoll_event *e, int n, int t), (d, e, n, t),
      result > 0)
WAITS(int, epoll_pwait, (int d, struct epoll_event *e, int n, int t, const sigset_t *s),
      (d, e, n, t, s), result > 0)
WAITS(int, pthread_cond_wait, (pthread_cond_t *c, pthread_mutex_t *m), (c, m), 1)
WAITS(int, pthread_cond_timedwait,
      (pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t), (c, m, t),
      result == 0)
WAITS(int, pthread_cond_clockwait,
      (pthread_cond_t *c, pthread_mutex_t *m, clockid_t k, const struct timespec *t),
      (c, m, k, t), result == 0)
WAITS(int, sem_wait, (sem_t *s), (s), 1)
WAITS(int, sem_timedwait, (sem_t *s, const struct timespec *t), (s, t), result == 0)
WAITS(int, sem_clockwait, (sem_t *s, clockid_t k, const struct timespec *t), (s, k, t),
      result == 0)

/* A descriptor that is closed, or becomes another, is looked at anew. */
#define ENDS(name, descriptor, parameters, arguments)       \
  __attribute__((visibility("default"))) int name parameters { \
    REAL(name);                                             \
    forget(descriptor);                                     \
    return real arguments;                                  \
  }
ENDS(close, s, (int s), (s))
ENDS(dup2, to, (int from, int to), (from, to))
ENDS(dup3, to, (int from, int to, int f), (from, to, f))

/* libc closes descriptors of its own, as of fclose, where nothing is seen of it. */
#define MAKES(name, parameters, arguments)                  \
  __attribute__((visibility("default"))) int name parameters { \
    REAL(name);                                             \
    int made = real arguments;                              \
    forget(made);                                           \
    return made;                                            \
  }
MAKES(socket, (int d, int t, int p), (d, t, p))
MAKES(accept, (int s, struct sockaddr *a, socklen_t *n), (s, a, n))
MAKES(accept4, (int s, struct sockaddr *a, socklen_t *n, int f), (s, a, n, f))
ENDS(connect, s, (int s, const struct sockaddr *a, socklen_t n), (s, a, n))
