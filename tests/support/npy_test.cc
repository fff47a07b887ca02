#include "tests/support/npy.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NpyTest : public ::testing::Test {
 protected:
  ~NpyTest() override { std::filesystem::remove(path_); }

  template <typename T>
  std::string WriteAndRead(const std::string& header, const std::vector<T>& elements) {
    std::ofstream file(path_, std::ios::binary);
    file.write("\x93NUMPY\x01\x00", 8);
    file.put(static_cast<char>(header.size() % 256)).put(static_cast<char>(header.size() / 256)) << header;
    file.write(reinterpret_cast<const char*>(elements.data()), static_cast<std::streamsize>(elements.size() * sizeof(T)));
    file.close();
    return ReadNpy(path_, array_);
  }

  const std::string path_ =
      ::testing::TempDir() + "npy_test_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".npy";
  NpyArray array_;
};

TEST_F(NpyTest, ReadsFloat32AndFloat64) {
  EXPECT_THAT(WriteAndRead<float>("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", {1, 2, 3, 4, 5, 0.1f}),
              IsEmpty());
  EXPECT_THAT(array_.shape, ElementsAre(2, 3));
  EXPECT_THAT(array_.elements, ElementsAre(1, 2, 3, 4, 5, static_cast<double>(0.1f)));
  EXPECT_THAT(WriteAndRead<double>("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n", {0.1}), IsEmpty());
  EXPECT_THAT(array_.shape, ElementsAre(1));
  EXPECT_THAT(array_.elements, ElementsAre(0.1));
}

TEST_F(NpyTest, ReadsScalarsAndEmptyArrays) {
  EXPECT_THAT(WriteAndRead<float>("{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", {7}), IsEmpty());
  EXPECT_THAT(array_.elements, ElementsAre(7));
  EXPECT_THAT(WriteAndRead<float>("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }\n", {}), IsEmpty());
  EXPECT_THAT(array_.elements, IsEmpty());
}

TEST_F(NpyTest, SaysWhatIsWrong) {
  EXPECT_THAT(WriteAndRead<float>("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }\n", {1}), HasSubstr("C order"));
  EXPECT_THAT(WriteAndRead<int>("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }\n", {1}),
              HasSubstr("neither float32"));
  EXPECT_THAT(WriteAndRead<float>("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", {1}),
              HasSubstr("has 4 bytes of data; its shape needs 12"));
  EXPECT_THAT(ReadNpy(path_ + ".missing", array_), HasSubstr("can't be read"));
  std::ofstream(path_) << "not an array";
  EXPECT_THAT(ReadNpy(path_, array_), HasSubstr("isn't a .npy file"));
}

}  // namespace
}  // namespace ridgeline::support
