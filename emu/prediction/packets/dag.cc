// A job over packets: ns-3 carries its flows by TCP through NICs, links and queues.
//
// Standard input, numbers and words apart by white space:
//   sharing (fair | tcp), TypeId of the congestion control, delay of a cable in seconds,
//   seconds of its rate that a queue holds
//   machines, then of each: payload bytes per second out, in, seconds that its cable adds
//   pools, then of each: slots
//   tasks, then of each: machine, pool that it takes a slot of and pool that it gives one
//   back to (or -1), iterations, seconds of each iteration
//   edges, then of each: source, destination, lag, latency in seconds, which a flow
//   without bytes takes too, flows, bytes of each flow
// Standard output: "task T N start end", "flow E N ready start end", then
//   "dropped PACKETS", and "end" when every task has ended.
//
// A task starts when its iteration before has ended and all that it needs has arrived
// (constraints (7) and (8) of DGTP); a flow is written when its source ends, behind the
// flow before on its edge. Each edge between machines is a connection of its own.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

constexpr uint32_t SEGMENT = 1448;       // payload of a packet of 1,500 bytes
constexpr double WIRE = 1502.0 / 1448.0; // PPP, IP, TCP with time stamps
constexpr uint32_t AT_ONCE = 10 * SEGMENT;

struct Task {
    int machine, takes, frees;
    std::vector<double> seconds;
    std::vector<double> start, end;
    std::vector<int> into, out;
    bool running = false, waiting = false;
};

struct Pool {
    int slots;
    std::deque<int> waiting; // tasks, in the order in which they came
};

struct Edge {
    int source, destination, lag;
    std::vector<uint64_t> bytes;
    std::vector<double> ready, start, end;
    bool local = false;
    Ptr<Socket> sender;
    uint64_t to_send = 0;  // written by the source, not yet taken by the socket
    uint64_t received = 0; // of the flow that arrives next
    double latency = 0;
    uint64_t empty = 0; // flows without bytes that have landed and are not taken
};

struct Machine {
    double out, in, latency;
};

double begin; // when the job starts: connections are there by then
std::vector<Machine> machines;
std::vector<Task> tasks;
std::vector<Edge> edges;
std::vector<Pool> pools;
uint64_t dropped = 0;
size_t left = 0; // iterations of tasks

double now() { return Simulator::Now().GetSeconds() - begin; }

void start_if_ready(int t);

// Take what has arrived: flows end in their order, those without bytes, of which no
// packet tells, after their latency.
void take_arrivals(int e) {
    auto& edge = edges[e];
    size_t n = edge.end.size();
    while (n < edge.ready.size() &&
           (edge.bytes[n] ? edge.received >= edge.bytes[n] : edge.empty > 0)) {
        edge.received -= edge.bytes[n];
        if (edge.bytes[n] == 0) --edge.empty;
        edge.end.push_back(now());
        ++n;
        if (n < edge.ready.size()) edge.start.push_back(now());
    }
    start_if_ready(edge.destination);
}

void write_more(int e) {
    auto& edge = edges[e];
    while (edge.to_send > 0) {
        uint64_t room = std::min<uint64_t>(edge.sender->GetTxAvailable(), AT_ONCE);
        uint32_t size = static_cast<uint32_t>(std::min(room, edge.to_send));
        if (size == 0) return;
        int taken = edge.sender->Send(Create<Packet>(size));
        if (taken <= 0) return;
        edge.to_send -= taken;
    }
}

void send_flow(int e) {
    auto& edge = edges[e];
    size_t n = edge.ready.size();
    if (n == edge.bytes.size()) return; // its destination has fewer iterations
    if (edge.end.size() == n) edge.start.push_back(now());
    edge.ready.push_back(now());
    if (edge.bytes[n] == 0 && edge.latency > 0) {
        Simulator::Schedule(Seconds(edge.latency), [e] {
            ++edges[e].empty;
            take_arrivals(e);
        });
    } else if (edge.local || edge.bytes[n] == 0) {
        edge.received += edge.bytes[n];
        edge.empty += edge.bytes[n] == 0;
        take_arrivals(e);
    } else {
        edge.to_send += edge.bytes[n];
        write_more(e);
    }
}

void end_task(int t);

void start(int t) {
    auto& task = tasks[t];
    task.waiting = false;
    task.running = true;
    task.start.push_back(now());
    Simulator::Schedule(Seconds(task.seconds[task.end.size()]), &end_task, t);
}

void give_back(Pool& pool) {
    ++pool.slots;
    if (pool.waiting.empty()) return;
    int next = pool.waiting.front();
    pool.waiting.pop_front();
    --pool.slots;
    start(next);
}

void end_task(int t) {
    auto& task = tasks[t];
    task.running = false;
    task.end.push_back(now());
    if (--left == 0) Simulator::Stop();
    for (int e : task.out) send_flow(e);
    start_if_ready(t);
    if (task.frees >= 0) give_back(pools[task.frees]);
}

void start_if_ready(int t) {
    auto& task = tasks[t];
    size_t n = task.end.size();
    if (task.running || task.waiting || n == task.seconds.size()) return;
    for (int e : task.into) {
        auto& edge = edges[e];
        auto needed = static_cast<int64_t>(n) - edge.lag;
        bool sent = needed >= 0 && needed < static_cast<int64_t>(edge.bytes.size());
        if (sent && static_cast<int64_t>(edge.end.size()) <= needed) return;
    }
    if (task.takes < 0) return start(t);
    auto& pool = pools[task.takes];
    if (pool.slots > 0) {
        --pool.slots;
        return start(t);
    }
    task.waiting = true;
    pool.waiting.push_back(t);
}

void receive(int e, Ptr<Socket> socket) {
    Ptr<Packet> packet;
    while ((packet = socket->Recv()) && packet->GetSize() > 0)
        edges[e].received += packet->GetSize();
    take_arrivals(e);
}

void read_job() {
    size_t count = 0;
    std::cin >> count;
    machines.resize(count);
    for (auto& machine : machines)
        std::cin >> machine.out >> machine.in >> machine.latency;
    std::cin >> count;
    pools.resize(count);
    for (auto& pool : pools) std::cin >> pool.slots;
    std::cin >> count;
    tasks.resize(count);
    for (auto& task : tasks) {
        std::cin >> task.machine >> task.takes >> task.frees >> count;
        task.seconds.resize(count);
        for (auto& seconds : task.seconds) std::cin >> seconds;
        left += count;
    }
    std::cin >> count;
    edges.resize(count);
    for (size_t e = 0; e < edges.size(); ++e) {
        auto& edge = edges[e];
        std::cin >> edge.source >> edge.destination >> edge.lag >> edge.latency >> count;
        edge.bytes.resize(count);
        for (auto& bytes : edge.bytes) std::cin >> bytes;
        edge.local = tasks[edge.source].machine == tasks[edge.destination].machine;
        tasks[edge.source].out.push_back(e);
        tasks[edge.destination].into.push_back(e);
    }
}

void set_defaults(const std::string& control) {
    auto type = TypeId::LookupByName(control);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(type));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT));
    // Of Linux: 10 segments to begin with, 200 ms at least, 40 ms for an answer.
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
}

void drop_item(Ptr<const QueueDiscItem>) { ++dropped; }

// One queue per flow, none of which is ever full or looked at by CoDel.
void share_by_flow(Ptr<NetDevice> device) {
    TrafficControlHelper helper;
    helper.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "MaxSize", StringValue("1000000p"),
                            "Interval", StringValue("1000s"), "Target",
                            StringValue("1000s"), "Flows", UintegerValue(65536),
                            "UseEcn", BooleanValue(false));
    auto discs = helper.Install(device);
    discs.Get(0)->TraceConnectWithoutContext("Drop", MakeCallback(&drop_item));
}

// Cable every machine to the switch; return the addresses of the machines.
std::vector<Ipv4Address> cable(NodeContainer hosts, Ptr<Node> hub, bool fair,
                               double delay, double queue) {
    std::vector<Ipv4Address> found;
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    for (size_t m = 0; m < machines.size(); ++m) {
        PointToPointHelper helper;
        helper.SetChannelAttribute("Delay",
                                   TimeValue(Seconds(delay + machines[m].latency)));
        helper.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));
        auto devices = helper.Install(hosts.Get(m), hub);
        double rates[] = {machines[m].out, machines[m].in};
        for (int way = 0; way < 2; ++way) {
            auto device = DynamicCast<PointToPointNetDevice>(devices.Get(way));
            double wire = rates[way] * WIRE;
            device->SetDataRate(DataRate(static_cast<uint64_t>(wire * 8)));
            // Linux lets a socket have two packets in its own NIC's queue (small
            // queues), so that there flows take turns and nothing is dropped.
            if (fair || way == 0) {
                share_by_flow(device);
                continue;
            }
            uint64_t bytes = static_cast<uint64_t>(std::max(wire * queue, 8 * 1502.0));
            TrafficControlHelper plain;
            plain.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize",
                                   StringValue(std::to_string(bytes) + "B"));
            auto discs = plain.Install(devices.Get(way));
            discs.Get(0)->TraceConnectWithoutContext("Drop", MakeCallback(&drop_item));
        }
        found.push_back(addresses.Assign(devices).GetAddress(0));
        addresses.NewNetwork();
    }
    return found;
}

bool carries(const Edge& edge) {
    auto some = [](uint64_t bytes) { return bytes > 0; };
    return !edge.local && std::any_of(edge.bytes.begin(), edge.bytes.end(), some);
}

void connect(int e, NodeContainer hosts, const std::vector<Ipv4Address>& addresses) {
    auto& edge = edges[e];
    auto from = tasks[edge.source].machine, to = tasks[edge.destination].machine;
    auto type = TcpSocketFactory::GetTypeId();
    uint16_t port = 1024 + e;
    auto listener = Socket::CreateSocket(hosts.Get(to), type);
    listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    listener->Listen();
    listener->SetAcceptCallback(
        MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
        Callback<void, Ptr<Socket>, const Address&>([e](Ptr<Socket> s, const Address&) {
            s->SetRecvCallback(
                Callback<void, Ptr<Socket>>([e](Ptr<Socket> got) { receive(e, got); }));
        }));
    edge.sender = Socket::CreateSocket(hosts.Get(from), type);
    edge.sender->Bind();
    edge.sender->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>(
        [e](Ptr<Socket>, uint32_t) { write_more(e); }));
    InetSocketAddress address(addresses[to], port);
    Simulator::Schedule(MilliSeconds(1 + e), [e, address] {
        edges[e].sender->Connect(address);
    });
}

void print() {
    for (size_t t = 0; t < tasks.size(); ++t)
        for (size_t n = 0; n < tasks[t].end.size(); ++n)
            std::printf("task %zu %zu %.9f %.9f\n", t, n, tasks[t].start[n],
                        tasks[t].end[n]);
    for (size_t e = 0; e < edges.size(); ++e)
        for (size_t n = 0; n < edges[e].end.size(); ++n)
            std::printf("flow %zu %zu %.9f %.9f %.9f\n", e, n, edges[e].ready[n],
                        edges[e].start[n], edges[e].end[n]);
    std::printf("dropped %llu\n", (unsigned long long)dropped);
    if (left == 0) std::printf("end\n");
}

} // namespace

int main() {
    std::string sharing, control;
    double delay = 0, queue = 0;
    std::cin >> sharing >> control >> delay >> queue;
    read_job();
    if (!std::cin) return 2;
    set_defaults(control);
    NodeContainer hosts(machines.size());
    auto hub = CreateObject<Node>();
    InternetStackHelper stack;
    stack.Install(hosts);
    stack.Install(hub);
    auto addresses = cable(hosts, hub, sharing == "fair", delay, queue);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    for (size_t e = 0; e < edges.size(); ++e)
        if (carries(edges[e])) connect(e, hosts, addresses);
    begin = 1.0 + 0.001 * static_cast<double>(edges.size());
    Simulator::Schedule(Seconds(begin), [] {
        for (size_t t = 0; t < tasks.size(); ++t) start_if_ready(t);
    });
    Simulator::Run();
    print();
    return 0;
}
