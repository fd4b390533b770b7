/* Sets of ports, a bit each: which have something left, and which a wave needs.
 *
 * At every event each wave asks whether a port of its is full, and most ask whether any has
 * something left. By ports that was half of sebf_madd: 222 waves of 19 ports where 40 send. */

#define FOR_WAVES(w, state) \
    for (int64_t w##_i = 0, w; w##_i < (state)->length[ORDERED] \
             && (w = (state)->scratch.order[w##_i], true); w##_i++)
#define FOR_WAVE_PORTS(at, waves, one) \
    for (WavePort *at = (waves)->port + (one)->port_first, \
                  *at##_end = (waves)->port + (one)->port_end; at < at##_end; at++)
/* The flows of a wave that are active still. */
#define FOR_ALIVE(group, waves, one) \
    for (int64_t group##_i = (one)->first, group; group##_i < (one)->end; group##_i++) \
        if ((group = (waves)->member[group##_i]) >= 0)

static inline uint64_t port_bit(int64_t port)
{
    return UINT64_C(1) << (port % WORD_BITS);
}

/* Put `port` where it belongs by what is left there. */
static inline void sort_port_by_rest(State *state, int64_t port)
{
    Waves *waves = &state->scratch.waves;
    double left = state->scratch.residual[port];
    int64_t word = port / WORD_BITS;
    if (left <= CRUMB * state->capacity[port])
        waves->full[word] |= port_bit(port);
    if (left == 0.0)
        waves->open[word] &= ~port_bit(port);
}

/* Nothing of any port is given away yet: those that are cut have nothing to give. */
static void open_ports(const Layout *layout, State *state)
{
    Waves *waves = &state->scratch.waves;
    empty_ports(layout, state);
    for (int64_t word = 0; word < port_words(layout); word++) {
        waves->open[word] = ~UINT64_C(0);
        waves->full[word] = 0;
    }
    for (int64_t port = 0; port < layout->ports; port++)
        if (state->capacity[port] == 0.0)
            sort_port_by_rest(state, port);
}

/* Give `rate` of what is left of `port` away. */
static inline void take_of_port(State *state, int64_t port, double rate)
{
    take_of(state, port, rate);
    sort_port_by_rest(state, port);
}

/* Give `rate` to the only flow of `group`, at the cost of its ports. */
static inline void take_of_ports(const Layout *layout, State *state, int64_t group, double rate)
{
    FOR_PORTS(port, layout, group)
        take_of_port(state, port, rate);
}

/* The part of a wave's ports that has `port`, NULL for none. */
static PortSet *part_with(Waves *waves, const Wave *wave, int64_t port)
{
    PortSet *part = waves->ports + wave->port_first;
    for (int64_t i = 0; i < wave->parts; i++)
        if (part[i].word == port / WORD_BITS)
            return part + i;
    return NULL;
}

/* Count the ports of a wave among its sets. There are no more parts than ports. */
static void set_ports(Waves *waves, Wave *wave)
{
    wave->parts = 0;
    FOR_WAVE_PORTS(at, waves, wave) {
        PortSet *part = part_with(waves, wave, at->port);
        if (part == NULL) {
            part = waves->ports + wave->port_first + wave->parts++;
            *part = (PortSet){.word = at->port / WORD_BITS};
        }
        part->crossed |= port_bit(at->port);
        part->sends |= at->sends ? port_bit(at->port) : 0;
        part->receives |= at->receives ? port_bit(at->port) : 0;
    }
}

/* Take `port`, which no flow of a wave crosses any more, out of its sets. */
static void leave_port(Waves *waves, const Wave *wave, int64_t port)
{
    PortSet *part = part_with(waves, wave, port);
    part->crossed &= ~port_bit(port);
    part->sends &= ~port_bit(port);
    part->receives &= ~port_bit(port);
}

/* True where a wave needs a port on which nothing is left. */
static inline bool is_held_up(const Waves *waves, const Wave *wave)
{
    const PortSet *part = waves->ports + wave->port_first;
    uint64_t full = 0;
    for (int64_t i = 0; i < wave->parts; i++)
        full |= part[i].crossed & waves->full[part[i].word];
    return full != 0;
}

/* True where something is left at ports at which flows of a wave begin, and end. */
static inline bool has_open_ports(const Waves *waves, const Wave *wave)
{
    const PortSet *part = waves->ports + wave->port_first;
    uint64_t senders = 0, receivers = 0;
    for (int64_t i = 0; i < wave->parts; i++) {
        uint64_t open = waves->open[part[i].word];
        senders |= part[i].sends & open;
        receivers |= part[i].receives & open;
    }
    return senders != 0 && receivers != 0;
}
