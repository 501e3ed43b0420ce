class ArrayImpl:
    def __init__(self, value):
        self._npy_value, self.nbytes = None, 64

    @property
    def _value(self):
        if self._npy_value is None:
            self._npy_value = memoryview(bytes(self.nbytes))  # an array, which knows its size
        return self._npy_value

    def block_until_ready(self):
        return self
