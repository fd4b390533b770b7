// What SimGrid itself makes of a platform, for tests/interchange/test_simgrid_peer.py.
//   peer PLATFORM            the route of every two hosts: ends, latency, bandwidths
//   peer PLATFORM flows      flows of stdin (source destination bytes), all at time 0:
//                            the time at which the last has come
#include <cstdio>
#include <iostream>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static void print_routes(const sg::Engine& engine) {
  for (auto* source : engine.get_all_hosts())
    for (auto* destination : engine.get_all_hosts()) {
      if (source == destination) continue;
      std::vector<sg::Link*> links;
      double latency = 0;
      try {
        source->route_to(destination, links, &latency);
      } catch (const std::exception&) {
        continue;
      }
      if (links.empty()) continue;
      printf("%s|%s|%.17g", source->get_cname(), destination->get_cname(), latency);
      for (auto* link : links) printf("|%.17g;%s", link->get_bandwidth(), link->get_cname());
      printf("\n");
    }
}

int main(int argc, char** argv) {
  sg::Engine engine(&argc, argv);
  engine.load_platform(argv[1]);
  engine.get_netzone_root()->seal();
  if (argc == 2) {
    print_routes(engine);
    return 0;
  }
  std::string source, destination;
  double bytes;
  std::vector<sg::ActorPtr> actors;
  while (std::cin >> source >> destination >> bytes) {
    auto* from = engine.host_by_name(source);
    auto* to = engine.host_by_name(destination);
    sg::Actor::create("sender", from, [from, to, bytes] {
      sg::Comm::sendto(from, to, static_cast<uint64_t>(bytes));
    });
  }
  engine.run();
  printf("%.17g\n", sg::Engine::get_clock());
  return 0;
}
