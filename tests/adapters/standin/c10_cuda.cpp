#include "c10.h"

void c10::throw_out_of_memory(const std::string &message)
{
    throw OutOfMemoryError({ __func__, __FILE__, __LINE__ }, message);
}
