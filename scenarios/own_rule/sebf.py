"""Varys' SEBF as a rule of one's own: --set schedule.policy=sebf.py:Sebf."""


class Sebf:
    """The coflow with the shortest bottleneck first; its flows end together."""

    def rates(self, flows, capacity):
        """Return a rate per flow."""
        rates, free, coflows = dict.fromkeys(flows, 0.0), dict(capacity), {}
        for flow in flows:
            coflows.setdefault((flow.serves, flow.coflow), []).append(flow)

        def bottleneck(coflow, free):
            pairs = [(link, flow.left) for flow in coflow for link in flow.links]
            left = {key: sum(b for link, b in pairs if link == key) for key, _ in pairs}
            return max(left[link] / free[link] for link in left)

        def give(flow, rate):
            rates[flow] += rate
            for link in flow.links:
                rest = free[link] - rate
                free[link] = rest if rest > 1e-9 * capacity[link] else 0.0

        def alone(coflow):  # to nine digits: what differs by rounding is a tie
            return float(f"{bottleneck(coflow, capacity):.9g}")

        ordered = sorted(coflows.values(), key=alone)
        for coflow in ordered:
            if all(free[link] for flow in coflow for link in flow.links):
                slowest = bottleneck(coflow, free)
                for flow in coflow:
                    give(flow, flow.left / slowest)
        for flow in (flow for coflow in ordered for flow in coflow):
            give(flow, min(free[link] for link in flow.links))
        return list(rates.values())
