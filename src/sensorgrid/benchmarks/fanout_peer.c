/* The two ends of `sensorgrid bench fanout` that are written in C.
 *
 *   fanout_peer serve PORT [CERT KEY]
 *       The yardstick: an epoll loop that reads blocks from one publisher and sends the same bytes to all clients.
 *       A connection says with its first byte what it is: P(ublisher) or C(lient). A block is a u32 length and as
 *       many bytes, which go out as they are. Non-blocking sockets, edge-triggered, no copy of a block.
 *
 *   fanout_peer receive HOST PORT PROTOCOL TLS LEAST_BYTES PLAN
 *       The receiving side, the same for all servers: opens all connections of the plan, greets, and then, for each
 *       line "publish COUNT INTERVAL_US" on standard input, publishes blocks and notes when each connection has each.
 *       With interval 0 the next block is published when all have the last. Messages of fewer than LEAST_BYTES are
 *       talk and do not count. PROTOCOL: frames (WebSocket frames at once), ws, mqtt, nats.
 *
 * A plan, little-endian u32: connections; per connection: messages per block (0: stalls, reads nothing once it has
 * greeted), stages; per stage: messages to hear before it, length, bytes. Then blocks, which differ in their heads only:
 * count, length and bytes of what all end with, and per block length and bytes of its head. Connection 0 publishes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    fprintf(stderr, "fanout_peer: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *must(void *memory) {
    if (!memory) die("memory");
    return memory;
}

/* -- one connection, plain or TLS: bytes moved, 0 for "later", -1 for "gone" */

struct wire {
    int fd;
    SSL *tls;
};

static ssize_t tls_result(struct wire *w, int moved) {
    if (moved > 0) return moved;
    int why = SSL_get_error(w->tls, moved);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return 0;
    return -1;
}

static ssize_t wire_read(struct wire *w, void *to, size_t most) {
    if (w->tls) return tls_result(w, SSL_read(w->tls, to, (int)most));
    ssize_t got = recv(w->fd, to, most, 0);
    if (got > 0) return got;
    return got < 0 && errno == EAGAIN ? 0 : -1;
}

static ssize_t wire_write(struct wire *w, const void *from, size_t length) {
    if (w->tls) return tls_result(w, SSL_write(w->tls, from, (int)length));
    ssize_t put = send(w->fd, from, length, MSG_NOSIGNAL);
    if (put >= 0) return put;
    return errno == EAGAIN ? 0 : -1;
}

static void wire_tune(SSL *tls) {
    SSL_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

static void no_delay(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/* -- serve */

#define QUEUE 64
#define GONE 'X'

struct block {
    unsigned holders;
    size_t length;
    char bytes[];
};

struct client {
    struct wire wire;
    char kind; /* 0: has said nothing yet */
    struct block *queue[QUEUE];
    unsigned first, count;
    size_t offset; /* of the first block: bytes sent */
    uint32_t length; /* publisher: of the block that arrives, and what is there of it */
    size_t have;
    struct block *coming;
    struct client *previous, *next; /* among the receivers */
};

static struct client *receivers, *graves; /* graves: freed when no event of the batch can name them any more */

static void release(struct block *b) {
    if (--b->holders == 0) free(b);
}

static void drop(struct client *c) {
    if (c->kind == 'C') {
        if (c->previous) c->previous->next = c->next;
        else receivers = c->next;
        if (c->next) c->next->previous = c->previous;
    }
    for (; c->count; c->count--) release(c->queue[c->first++ % QUEUE]);
    free(c->coming);
    if (c->wire.tls) SSL_free(c->wire.tls);
    close(c->wire.fd);
    c->kind = GONE, c->next = graves, graves = c;
}

static void bury(void) {
    for (struct client *c; (c = graves); free(c)) graves = c->next;
}

/* Sends what waits; false when the client is gone. */
static int flush(struct client *c) {
    while (c->count) {
        struct block *b = c->queue[c->first % QUEUE];
        ssize_t put = wire_write(&c->wire, b->bytes + c->offset, b->length - c->offset);
        if (put < 0) return 0;
        if (put == 0) return 1;
        c->offset += (size_t)put;
        if (c->offset == b->length) {
            release(b);
            c->first++, c->count--, c->offset = 0;
        }
    }
    return 1;
}

static void fan_out(struct block *b) {
    b->holders = 1;
    for (struct client *c = receivers, *next; c; c = next) {
        next = c->next;
        if (c->count == QUEUE) {
            drop(c);
            continue;
        }
        b->holders++;
        c->queue[(c->first + c->count++) % QUEUE] = b;
        if (c->count == 1 && !flush(c)) drop(c);
    }
    release(b);
}

/* Reads until there is no more; false when the peer is gone. */
static int hear(struct client *c) {
    char talk[256];
    for (;;) {
        ssize_t got;
        if (c->kind != 'P') {
            got = wire_read(&c->wire, talk, c->kind ? sizeof talk : 1);
            if (got <= 0) return got == 0;
            if (c->kind) continue;
            c->kind = talk[0];
            if (c->kind == 'C') {
                c->next = receivers, c->previous = NULL;
                if (receivers) receivers->previous = c;
                receivers = c;
                if (wire_write(&c->wire, "\x82\0", 2) != 2) return 0; /* an empty frame: you are in */
            }
        } else if (!c->coming) {
            got = wire_read(&c->wire, (char *)&c->length + c->have, 4 - c->have);
            if (got <= 0) return got == 0;
            c->have += (size_t)got;
            if (c->have < 4) continue;
            c->coming = must(malloc(sizeof *c->coming + c->length));
            c->coming->length = c->length, c->have = 0;
        } else {
            got = wire_read(&c->wire, c->coming->bytes + c->have, c->length - c->have);
            if (got <= 0) return got == 0;
            c->have += (size_t)got;
            if (c->have < c->length) continue;
            struct block *whole = c->coming;
            c->coming = NULL, c->have = 0;
            fan_out(whole);
        }
    }
}

static _Noreturn void serve(int argc, char **argv) {
    SSL_CTX *context = NULL;
    if (argc >= 5) {
        context = SSL_CTX_new(TLS_server_method());
        if (!context || SSL_CTX_use_certificate_chain_file(context, argv[3]) != 1 ||
            SSL_CTX_use_PrivateKey_file(context, argv[4], SSL_FILETYPE_PEM) != 1)
            die("certificate");
    }
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 4096)) die("listen");
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        int ready = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            struct client *c = events[i].data.ptr;
            if (c) {
                if (c->kind != GONE && (!hear(c) || !flush(c))) drop(c);
                continue;
            }
            int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
            if (fd < 0) continue;
            no_delay(fd);
            c = must(calloc(1, sizeof *c));
            c->wire.fd = fd;
            if (context) {
                c->wire.tls = SSL_new(context);
                wire_tune(c->wire.tls);
                SSL_set_fd(c->wire.tls, fd);
                SSL_set_accept_state(c->wire.tls);
            }
            /* Edge-triggered for both: no system call when a client becomes slow or quick. */
            event.events = EPOLLIN | EPOLLOUT | EPOLLET, event.data.ptr = c;
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        }
        bury();
    }
}

/* -- receive */

struct stage {
    uint32_t after, length;
    const char *bytes;
};

struct receiver {
    struct wire wire;
    uint32_t per_block, stages, said;
    struct stage *stage;
    size_t offset; /* of what is being said */
    int upgraded;
    uint64_t heard, data; /* messages, and those that are data */
    uint64_t skip; /* bytes of the current message that are still to come */
    int counts; /* whether it is data */
    char head[4096]; /* of a message, until it is whole */
    size_t head_length;
};

#define HEAD_MAX 4096

static enum { FRAMES, WS, MQTT, NATS } protocol;
static uint64_t least, received;
static struct receiver *peers;
static uint32_t peer_count, missing;
static uint64_t goal; /* blocks that each shall have */
static double published, *delays;
static size_t delay_count;
static struct { uint32_t length; const char *bytes; } *heads, tail;
static char buffer[1 << 18];

/* The length of a message's head and the bytes after it, or 0 if the head is not whole yet. */
static size_t parse(struct receiver *r, const unsigned char *head, size_t have, uint64_t *body) {
    if (protocol == WS && !r->upgraded) {
        const char *end = memmem(head, have, "\r\n\r\n", 4);
        if (!end) return 0;
        if (have < 12 || memcmp(head + 9, "101", 3)) {
            errno = 0;
            die("upgrade refused");
        }
        r->upgraded = 1, *body = 0;
        return (size_t)(end + 4 - (const char *)head);
    }
    if (protocol == MQTT) {
        uint64_t length = 0;
        for (size_t i = 1; i < have && i < 5; i++) {
            length |= (uint64_t)(head[i] & 127) << (7 * (i - 1));
            if (!(head[i] & 128)) {
                *body = length;
                return i + 1;
            }
        }
        return 0;
    }
    if (protocol == NATS) {
        const unsigned char *end = memmem(head, have, "\r\n", 2);
        if (!end) return 0;
        *body = 0;
        if (have > 4 && !memcmp(head, "MSG ", 4)) {
            const unsigned char *digit = end;
            while (digit[-1] != ' ') digit--;
            *body = strtoull((const char *)digit, NULL, 10) + 2;
        }
        return (size_t)(end + 2 - head);
    }
    if (have < 2) return 0;
    uint64_t length = head[1] & 127;
    size_t size = length < 126 ? 2 : length == 126 ? 4 : 10;
    if (have < size) return 0;
    if (size > 2) {
        length = 0;
        for (size_t i = 2; i < size; i++) length = length << 8 | head[i];
    }
    *body = length;
    return size;
}

static void whole(struct receiver *r) {
    r->heard++;
    if (!r->counts) return;
    r->data++;
    if (r->per_block && r->data == goal * r->per_block) {
        if (delays) delays[delay_count++] = now() - published;
        missing--;
    }
}

static void digest(struct receiver *r, const char *bytes, size_t length) {
    while (length) {
        if (r->skip) {
            size_t step = r->skip < length ? (size_t)r->skip : length;
            bytes += step, length -= step, r->skip -= step;
            if (!r->skip) whole(r);
            continue;
        }
        size_t before = r->head_length, step = 0, head;
        uint64_t body = 0;
        if (!before) {
            head = parse(r, (const unsigned char *)bytes, length, &body);
        } else {
            step = length < sizeof r->head - before ? length : sizeof r->head - before;
            memcpy(r->head + before, bytes, step);
            head = parse(r, (unsigned char *)r->head, before + step, &body);
        }
        if (!head) {
            if (before + length >= sizeof r->head) errno = 0, die("a head without end");
            memcpy(r->head + before, bytes, length);
            r->head_length = before + length;
            return;
        }
        bytes += head - before, length -= head - before;
        r->head_length = 0, r->counts = body >= least, r->skip = body;
        if (!body) whole(r);
    }
}

static void listen_to(struct receiver *r) {
    for (;;) {
        ssize_t got = wire_read(&r->wire, buffer, sizeof buffer);
        if (got == 0) return;
        if (got < 0) {
            errno = 0;
            die("the server closed a connection");
        }
        received += (uint64_t)got;
        digest(r, buffer, (size_t)got);
        if (!r->wire.tls && (size_t)got < sizeof buffer) return; /* edge: more would come with a new event */
    }
}

/* Says what is due; returns whether all is said. */
static int speak(struct receiver *r) {
    while (r->said < r->stages && r->heard >= r->stage[r->said].after) {
        struct stage *s = &r->stage[r->said];
        if (r->offset < s->length) {
            ssize_t put = wire_write(&r->wire, s->bytes + r->offset, s->length - r->offset);
            if (put < 0) die("greeting");
            if (put == 0) return 0;
            r->offset += (size_t)put;
        }
        if (r->offset == s->length) r->said++, r->offset = 0;
    }
    return r->said == r->stages;
}

static int stalls(struct receiver *r) {
    return r != peers && !r->per_block && r->said == r->stages;
}

/* One turn of the loop. */
static int turn(int poll, int wait_ms) {
    struct epoll_event events[256];
    int ready = epoll_wait(poll, events, 256, wait_ms);
    for (int i = 0; i < ready; i++) {
        struct receiver *r = events[i].data.ptr;
        if (stalls(r)) continue;
        listen_to(r);
        speak(r);
    }
    return ready;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void publish(int poll, uint32_t first, uint32_t count, double interval) {
    uint64_t before = received;
    double start = now();
    delays = must(malloc(sizeof(double) * (count * (size_t)peer_count + 1))), delay_count = 0;
    char *block = must(malloc(HEAD_MAX + (size_t)tail.length));
    for (uint32_t k = 0; k < count; k++) {
        size_t length = (size_t)heads[first + k].length + tail.length;
        memcpy(block, heads[first + k].bytes, heads[first + k].length);
        memcpy(block + heads[first + k].length, tail.bytes, tail.length);
        goal++, missing = 0;
        for (uint32_t i = 1; i < peer_count; i++) missing += peers[i].per_block > 0;
        published = now();
        for (size_t put = 0; put < length;) {
            ssize_t more = wire_write(&peers[0].wire, block + put, length - put);
            if (more < 0) die("publishing");
            put += (size_t)more;
            if (put < length) turn(poll, 0);
        }
        for (double deadline = published + 120; missing; turn(poll, 1000))
            if (now() > deadline) {
                errno = 0;
                fprintf(stderr, "block %u: %u connections lack it after 120 s\n", first + k, missing);
                die("delivery");
            }
        while (now() < published + interval) turn(poll, 1);
    }
    double seconds = now() - start;
    qsort(delays, delay_count, sizeof *delays, by_value);
    double p50 = delay_count ? delays[delay_count / 2] : 0, p99 = delay_count ? delays[delay_count * 99 / 100] : 0;
    printf("{\"bytes\": %llu, \"seconds\": %.9f, \"p50_s\": %.9f, \"p99_s\": %.9f}\n",
           (unsigned long long)(received - before), seconds, p50, p99);
    fflush(stdout);
    free(delays), free(block);
}

static uint32_t take(const char **at) {
    uint32_t value;
    memcpy(&value, *at, 4);
    *at += 4;
    return value;
}

static uint32_t read_plan(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *plan = must(malloc(size + 1));
    if (fread(plan, 1, size, file) != size) die(path);
    fclose(file);
    const char *at = plan;
    peer_count = take(&at);
    peers = must(calloc(peer_count, sizeof *peers));
    for (uint32_t i = 0; i < peer_count; i++) {
        peers[i].per_block = take(&at), peers[i].stages = take(&at);
        peers[i].stage = must(calloc(peers[i].stages, sizeof(struct stage)));
        for (uint32_t s = 0; s < peers[i].stages; s++) {
            struct stage *stage = &peers[i].stage[s];
            stage->after = take(&at), stage->length = take(&at), stage->bytes = at, at += stage->length;
        }
    }
    uint32_t count = take(&at);
    tail.length = take(&at), tail.bytes = at, at += tail.length;
    heads = must(calloc(count + 1, sizeof *heads));
    for (uint32_t k = 0; k < count; k++) {
        heads[k].length = take(&at), heads[k].bytes = at, at += heads[k].length;
        if (heads[k].length > HEAD_MAX) errno = 0, die("a head too long");
    }
    return count;
}

static void dial(struct receiver *r, struct sockaddr_in *to, SSL_CTX *context, int poll) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int little = 4096;
    if (r != peers && !r->per_block) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little); /* stalls soon */
    if (fd < 0 || connect(fd, (struct sockaddr *)to, sizeof *to)) die("connect");
    no_delay(fd);
    r->wire.fd = fd;
    if (context) {
        char letter = 0;
        while (protocol == NATS && letter != '\n') /* says INFO in the clear, then expects TLS */
            if (recv(fd, &letter, 1, 0) != 1) die("INFO");
        r->heard += protocol == NATS;
        r->wire.tls = SSL_new(context);
        wire_tune(r->wire.tls);
        SSL_set_fd(r->wire.tls, fd);
        if (SSL_connect(r->wire.tls) != 1) {
            ERR_print_errors_fp(stderr);
            die("TLS");
        }
        SSL_set_read_ahead(r->wire.tls, 1);
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = r};
    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    speak(r);
}

static int receive(char **argv) {
    static const char *const names[] = {"frames", "ws", "mqtt", "nats"};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    inet_pton(AF_INET, argv[2], &to.sin_addr);
    for (int i = 0; i < 4; i++)
        if (!strcmp(argv[4], names[i])) protocol = i;
    SSL_CTX *context = NULL;
    if (atoi(argv[5])) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
        SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256"); /* the same for all servers */
    }
    least = strtoull(argv[6], NULL, 10);
    uint32_t count = read_plan(argv[7]), next = 0;
    int poll = epoll_create1(0);
    for (uint32_t i = 0; i < peer_count; i++) {
        dial(&peers[i], &to, context, poll);
        turn(poll, 0);
    }
    for (double quiet = now(), limit = quiet + 300; now() < quiet + 0.5;) {
        int silent = !turn(poll, 50);
        uint32_t greeting = 0;
        for (uint32_t i = 0; i < peer_count; i++) greeting += !speak(&peers[i]);
        if (!silent || greeting) quiet = now();
        if (now() > limit) errno = 0, die("greetings took more than five minutes");
    }
    printf("{\"connections\": %u}\n", peer_count - 1);
    fflush(stdout);
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        unsigned blocks_now;
        double interval_us;
        if (sscanf(line, "publish %u %lf", &blocks_now, &interval_us) != 2 || next + blocks_now > count)
            errno = 0, die("bad command");
        publish(poll, next, blocks_now, interval_us * 1e-6);
        next += blocks_now;
    }
    return 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc >= 3 && !strcmp(argv[1], "serve")) serve(argc, argv);
    if (argc == 8 && !strcmp(argv[1], "receive")) return receive(argv);
    fprintf(stderr, "usage: fanout_peer serve PORT [CERT KEY] | receive HOST PORT PROTOCOL TLS LEAST PLAN\n");
    return 2;
}
