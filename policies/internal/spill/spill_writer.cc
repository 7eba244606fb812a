#include "policies/internal/spill/spill_writer.h"

#include <ATen/ops/clone.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <signal.h>
#include <zlib.h>

#include <exception>
#include <utility>

#include "ac2/internal/libtorch/python_lock.h"

namespace ac2::policies::internal {

namespace {

constexpr const char* kAdvice =
    " Free space on that disk, give a directory on another, or spill fewer ops. Backward cannot run without these "
    "bytes.";

uint32_t checksum_of(const at::Tensor& tensor) {
  return static_cast<uint32_t>(
      crc32_z(0, static_cast<const Bytef*>(tensor.const_data_ptr()), static_cast<z_size_t>(tensor.nbytes())));
}

// Signals are for the program's threads. SIGXFSZ, too: a write beyond the limit of file sizes is then an error.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

SpillWriter::SpillWriter(std::string directory, int64_t queue_bytes, int64_t file_bytes)
    : directory_(std::move(directory)), queue_bytes_(queue_bytes), file_bytes_(file_bytes) {
  const SpillFile can_be_made(directory_);
  ForkWatch::get().add(this);
}

SpillWriter::~SpillWriter() {
  ForkWatch::get().remove(this);
  {
    const ac2::internal::MutexLock lock(mutex_);
    stopping_ = true;
  }
  waits_->work.notify_all();
  const ac2::internal::WithoutPythonLock without;
  if (waits_->thread.joinable()) waits_->thread.join();
}

void SpillWriter::start() {
  if (!waits_->thread.joinable() && !queue_.empty()) waits_->thread = std::thread([this] { run(); });
}

void SpillWriter::forked() {
  (void)waits_.release();  // the end of either member would wait for the thread
  waits_ = std::make_unique<Waits>();
  if (being_written_ != nullptr) {
    being_written_->state = SpilledTensor::State::QUEUED;
    queue_.push_front(std::exchange(being_written_, nullptr));
  }
  queued_bytes_ = 0;
  for (const std::shared_ptr<SpilledTensor>& spilled : queue_) {
    queued_bytes_ += spilled->counted && spilled->bytes.defined() ? spilled->nbytes : 0;
  }
  file_.reset();  // the parent goes on writing to it
}

std::shared_ptr<SpilledTensor> SpillWriter::write(const at::Tensor& dense, const std::string& op) {
  const auto spilled = std::make_shared<SpilledTensor>();
  spilled->op = op;
  spilled->nbytes = static_cast<int64_t>(dense.nbytes());
  const bool fits = spilled->nbytes <= queue_bytes_;
  at::Tensor kept = fits ? at::Tensor() : dense;  // before the lock, as dense may be Python's

  ac2::internal::ReleasableMutexLock lock(mutex_);
  start();
  while (error_.empty() && fits && queued_bytes_ + spilled->nbytes > queue_bytes_) {
    waits_->changed.wait(mutex_);
  }
  TORCH_CHECK(error_.empty(), std::exchange(error_, std::string()));
  if (spilled->nbytes == 0) {
    spilled->state = SpilledTensor::State::WRITTEN;
    ++needed_;
    return spilled;
  }
  if (fits) {
    queued_bytes_ += spilled->nbytes;
    spilled->counted = true;
    lock.unlock();
    try {
      spilled->bytes = at::clone(dense);
    } catch (...) {
      lock.lock();
      queued_bytes_ -= spilled->nbytes;
      waits_->changed.notify_all();
      throw;
    }
    lock.lock();
  } else {
    spilled->bytes = std::move(kept);
  }
  queue_.push_back(spilled);
  ++needed_;
  start();
  waits_->work.notify_one();
  if (!fits) {
    while (spilled->state < SpilledTensor::State::WRITTEN) {
      waits_->changed.wait(mutex_);
    }
    if (spilled->state == SpilledTensor::State::FAILED) {
      lock.unlock();
      forget(*spilled);
      TORCH_CHECK(false, spilled->error);
    }
  }
  return spilled;
}

void SpillWriter::run() {
  block_signals();
  ac2::internal::ReleasableMutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && queue_.empty()) {
      waits_->work.wait(mutex_);
    }
    if (stopping_) return;
    const std::shared_ptr<SpilledTensor> spilled = std::move(queue_.front());
    queue_.pop_front();
    if (!spilled->bytes.defined()) continue;  // forgotten
    spilled->state = SpilledTensor::State::WRITING;
    being_written_ = spilled;
    if (file_end_ >= file_bytes_) file_.reset();
    std::shared_ptr<const SpillFile> file = file_;
    const int64_t offset = file == nullptr ? 0 : file_end_;
    lock.unlock();
    write_out(*spilled, file, offset);
    lock.lock();
    file_ = std::move(file);
    being_written_.reset();
    at::Tensor written = finish(*spilled);
    lock.unlock();
    written.reset();
    lock.lock();
    if (spilled->counted) queued_bytes_ -= spilled->nbytes;
    waits_->changed.notify_all();
  }
}

void SpillWriter::write_out(SpilledTensor& spilled, std::shared_ptr<const SpillFile>& file, int64_t offset) {
  // Other threads look at these fields when the tensor is written, and leave its bytes alone until then. They leave
  // file_ alone too while a tensor is being written.
  const at::Tensor& bytes = spilled.bytes;
  try {
    if (file == nullptr) file = std::make_shared<const SpillFile>(directory_);
    spilled.offset = offset;
    spilled.checksum = checksum_of(bytes);
    file->write(offset, bytes.const_data_ptr(), bytes.nbytes());
  } catch (const c10::Error& error) {
    spilled.error = "spill_to_file, the result of " + spilled.op + ": " + error.what_without_backtrace() + kAdvice;
  } catch (const std::exception& error) {
    spilled.error = "spill_to_file, the result of " + spilled.op + ": " + error.what() + kAdvice;
  }
}

at::Tensor SpillWriter::finish(SpilledTensor& spilled) {
  if (spilled.error.empty()) {
    spilled.state = SpilledTensor::State::WRITTEN;
    spilled.file = file_;
    file_end_ = spilled.offset + spilled.nbytes;
  } else {
    spilled.state = SpilledTensor::State::FAILED;
    if (!spilled.forgotten) error_ = spilled.error;
  }
  if (needed_ == 0) file_.reset();
  return std::move(spilled.bytes);
}

void SpillWriter::read(const SpilledTensor& spilled, const at::Tensor& out) {
  std::shared_ptr<const SpillFile> file;
  {
    const ac2::internal::MutexLock lock(mutex_);
    start();
    while (spilled.state < SpilledTensor::State::WRITTEN) {
      waits_->changed.wait(mutex_);
    }
    if (spilled.state == SpilledTensor::State::FAILED) error_.clear();
    TORCH_CHECK(spilled.state == SpilledTensor::State::WRITTEN, spilled.error);
    file = spilled.file;
  }
  if (file == nullptr) return;  // no bytes
  try {
    file->read(spilled.offset, out.mutable_data_ptr(), out.nbytes());
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, "spill_to_file, the result of ", spilled.op, ": ", error.what_without_backtrace(),
                " Something has shortened the file, or the disk fails; do not go on with this step.");
  }
  TORCH_CHECK(checksum_of(out) == spilled.checksum, "spill_to_file, the result of ", spilled.op, ": the ",
              spilled.nbytes, " bytes at ", spilled.offset, " of \"", file->path(),
              "\" (removed from its directory) are not those that were written: their checksum differs. Something has "
              "written to the file, or the disk fails; do not go on with this step.");
}

void SpillWriter::forget(SpilledTensor& spilled) {
  at::Tensor bytes;  // freed without the lock
  std::shared_ptr<const SpillFile> file;
  const ac2::internal::MutexLock lock(mutex_);
  if (spilled.state == SpilledTensor::State::QUEUED) {
    bytes = std::move(spilled.bytes);
    spilled.bytes.reset();
    if (spilled.counted) queued_bytes_ -= spilled.nbytes;
    waits_->changed.notify_all();
  }
  spilled.forgotten = true;
  if (spilled.state == SpilledTensor::State::FAILED && error_ == spilled.error) error_.clear();
  file = std::move(spilled.file);
  if (--needed_ == 0 && being_written_ == nullptr) file_.reset();
}

}  // namespace ac2::policies::internal
