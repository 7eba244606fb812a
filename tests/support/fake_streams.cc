#include "tests/support/fake_streams.h"

#include <algorithm>
#include <utility>

namespace ac2::test {

namespace {

void join(FakeClock& clock, const FakeClock& other) {
  std::transform(clock.begin(), clock.end(), other.begin(), clock.begin(),
                 [](uint64_t a, uint64_t b) { return std::max(a, b); });
}

}  // namespace

void FakeStreams::set_seed(uint64_t seed) {
  seed_ = seed;
  random_.seed(seed);
}

uint64_t FakeStreams::next_time(int stream) {
  FakeClock& clock = streams_[stream].clock;
  join(clock, host_);
  return ++clock[stream];
}

void FakeStreams::queue(int stream, std::function<void()> work) {
  streams_[stream].items.push_back({std::move(work)});
  ++streams_[stream].queued;
  ++pending_;
}

void FakeStreams::run_to(int stream, uint64_t position) {
  Stream& running = streams_[stream];
  while (running.done < position) {
    const Item item = std::move(running.items.front());
    running.items.pop_front();
    ++running.done;
    if (item.work) {
      --pending_;
      item.work();
    } else {
      run_to(item.stream, item.position);
    }
  }
}

void FakeStreams::record(FakeEvent& event, int stream) {
  next_time(stream);
  event = {.stream = stream,
           .position = streams_[stream].queued,
           .clock = streams_[stream].clock,
           .milliseconds = streams_[stream].milliseconds};
}

void FakeStreams::wait(const FakeEvent& event, int stream) {
  if (event.stream < 0) return;
  join(streams_[stream].clock, event.clock);
  streams_[stream].milliseconds = std::max(streams_[stream].milliseconds, event.milliseconds);
  if (event.stream == stream) return;
  streams_[stream].items.push_back({.work = nullptr, .stream = event.stream, .position = event.position});
  ++streams_[stream].queued;
}

bool FakeStreams::has_happened(const FakeEvent& event) {
  if (event.stream < 0) return true;
  Stream& stream = streams_[event.stream];
  if (stream.done < event.position && seed_ != 0) {
    run_to(event.stream, std::min(event.position, stream.done + random_() % 3));
  }
  if (stream.done < event.position) return false;
  join(host_, event.clock);
  return true;
}

void FakeStreams::synchronize(const FakeEvent& event) {
  if (event.stream < 0) return;
  run_to(event.stream, event.position);
  join(host_, event.clock);
}

void FakeStreams::synchronize(int stream) {
  catch_up(stream);
  join(host_, streams_[stream].clock);
}

}  // namespace ac2::test
