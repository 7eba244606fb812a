// Values' memory, what tells that they were written to, and the map from storages to them.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "ac2/internal/graph/pool.h"
#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/graph/value.h"
#include "ac2/internal/graph/watched_versions.h"
#include "ac2/internal/tape/meta_table.h"
#include "ac2/internal/tape/storage_map.h"

namespace ac2::internal {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

struct Counted {
  explicit Counted(int& alive) : alive(alive) { ++alive; }
  ~Counted() { --alive; }
  int& alive;
};

TEST(PoolTest, GivesTheMemoryOfADestroyedObjectToALaterOne) {
  Pool<Counted> pool;
  int alive = 0;
  std::set<Counted*> first;
  for (int i = 0; i < 100; ++i) {
    first.insert(pool.make(alive));
  }
  EXPECT_EQ(first.size(), 100U);
  EXPECT_EQ(alive, 100);
  for (Counted* object : first) {
    pool.destroy(object);
  }
  EXPECT_EQ(alive, 0);
  std::vector<Counted*> second;
  for (int i = 0; i < 100; ++i) {
    second.push_back(pool.make(alive));
    EXPECT_TRUE(first.contains(second.back()));
  }
  for (Counted* object : second) {
    pool.destroy(object);
  }
}

TEST(WatchedVersionsTest, SeesWritesThroughTheTensorAViewAndEveryOtherTensorThatWasNoted) {
  const at::Tensor tensor = at::ones({4}), data = tensor.variable_data();
  for (const at::Tensor& through : {tensor, tensor.view({2, 2}), data}) {
    WatchedVersions versions;
    EXPECT_FALSE(versions.noted());
    versions.note(tensor);
    versions.note_also(data);
    EXPECT_TRUE(versions.are_complete());
    EXPECT_FALSE(versions.changed());
    through.add_(1);
    EXPECT_TRUE(versions.changed());
    const WatchedVersions::Change change = versions.first_change(SeenWrites(), nullptr);
    EXPECT_EQ(change.found, change.expected + 1);
    versions.catch_up();
    EXPECT_FALSE(versions.changed());
    through.add_(1);
    versions.release();
    EXPECT_FALSE(versions.changed());
    EXPECT_TRUE(versions.noted());
  }
}

TEST(WatchedVersionsTest, AreNotCompleteWithMoreTensorsThanAreWatched) {
  const at::Tensor tensor = at::ones({4});
  WatchedVersions versions;
  versions.note(tensor);
  std::vector<at::Tensor> others;
  for (size_t i = 0; i <= WatchedVersions::kMostOthers; ++i) {
    EXPECT_TRUE(versions.are_complete());
    others.push_back(tensor.variable_data());
    versions.note_also(others.back());
  }
  EXPECT_FALSE(versions.are_complete());
}

TEST(SeenWritesTest, CountsBelongToTheStorageThatTheyWereSeenToGoTo) {
  SeenWrites writes;
  const at::Tensor tensor = at::ones({4}), other = at::ones({4});
  const uint32_t start = counter_of(tensor).current_version();
  EXPECT_FALSE(writes.are_elsewhere(counter_of(tensor), start, storage_of(tensor)));  // nothing is known of the counter
  const SeenWrites::Write elsewhere(tensor, storage_of(other), "aten::add_.Scalar");
  tensor.add_(1);
  writes.note(elsewhere);
  EXPECT_TRUE(writes.are_elsewhere(counter_of(tensor), start, storage_of(tensor)));
  EXPECT_FALSE(writes.are_elsewhere(counter_of(tensor), start, storage_of(other)));
  EXPECT_STREQ(writes.last_op(counter_of(tensor), storage_of(other)), "aten::add_.Scalar");
  EXPECT_EQ(writes.last_op(counter_of(tensor), storage_of(tensor)), nullptr);
  tensor.add_(1);  // which nobody has noted
  EXPECT_FALSE(writes.are_elsewhere(counter_of(tensor), start, storage_of(tensor)));
}

TEST(SeenWritesTest, ACountThatComesBeforeItsOpBelongsToTheOpsStorageOnceTheOpHasRun) {
  SeenWrites writes;
  const at::Tensor tensor = at::ones({4}), other = at::ones({4});
  const auto count = [](const at::Tensor& t) { t.unsafeGetTensorImpl()->bump_version(); };
  const auto is_elsewhere = [&](uint32_t version) {
    return writes.are_elsewhere(counter_of(tensor), version, storage_of(tensor));
  };
  for (const at::Tensor& written : {other, tensor}) {
    const uint32_t start = counter_of(tensor).current_version();
    writes.note_early(tensor);
    count(tensor);
    EXPECT_TRUE(is_elsewhere(start));
    writes.note(SeenWrites::Write(tensor, storage_of(written), "library::op"));
    EXPECT_EQ(is_elsewhere(start), written.is_same(other));
    EXPECT_STREQ(writes.last_op(counter_of(tensor), storage_of(written)), "library::op");
  }
}

TEST(StorageMapTest, FindsTheYoungAndTheOthersUntilTheyAreRemoved) {
  std::vector<at::Tensor> tensors;
  std::vector<std::unique_ptr<Value>> values;
  StorageMap map;
  for (uint32_t i = 0; i < 3 * StorageMap::kYoung; ++i) {
    tensors.push_back(at::ones({4}));
    values.push_back(std::make_unique<Value>(tensors.back().storage()));
    if (Value* oldest = map.add_young(values.back().get())) {
      EXPECT_EQ(map.find(oldest->original_address()), nullptr);
      map.add(oldest);
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(map.find(storage_of(tensors[i])), values[i].get()) << i;
  }
  for (size_t i = 0; i < tensors.size(); i += 2) {
    map.remove(values[i].get());
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(map.find(storage_of(tensors[i])), i % 2 == 0 ? nullptr : values[i].get()) << i;
  }
  EXPECT_EQ(map.find(storage_of(at::ones({1}))), nullptr);
}

TEST(MetaTableTest, KeepsEachLayoutOnceAndDropsWhatIsNotUsed) {
  MetaTable table;
  const at::Tensor tensor = at::ones({2, 3});
  const TensorMeta* meta = table.intern(*tensor.unsafeGetTensorImpl());
  EXPECT_EQ(table.intern(*at::ones({2, 3}).unsafeGetTensorImpl()), meta);
  EXPECT_NE(table.intern(*tensor.t().unsafeGetTensorImpl()), meta);
  for (int64_t i = 1; !table.is_crowded(); ++i) {
    ASSERT_LT(i, 100000);
    table.intern(*at::ones({1}).expand({i}).unsafeGetTensorImpl());
  }
  table.keep_only({meta});
  EXPECT_FALSE(table.is_crowded());
  EXPECT_EQ(table.intern(*tensor.unsafeGetTensorImpl()), meta);
}

TEST(ValueTest, IsSavedAndOnlyItsOriginalWhenItIsNew) {
  const at::Tensor tensor = at::ones({4});
  const Value value(tensor.storage());
  EXPECT_EQ(value.decided(), Decided::kSave);
  EXPECT_TRUE(value.state() == ValueState{});
  EXPECT_FALSE(value.counts_on_replay());
  EXPECT_TRUE(value.is_only_original());
  EXPECT_TRUE(value.is_lost_by_a_write());
  EXPECT_FALSE(value.outlives_a_write());
  EXPECT_FALSE(value.is_at_hand());
  EXPECT_EQ(value.held_bytes(), 0);
  EXPECT_EQ(value.bytes(), 16);
}

}  // namespace
}  // namespace ac2::internal
