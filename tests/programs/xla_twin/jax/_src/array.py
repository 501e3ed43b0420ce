class ArrayImpl:
    def __init__(self, value):
        self.given, self._npy_value, self.nbytes = value, None, 64

    @property
    def _value(self):
        if self._npy_value is None:
            self._npy_value = self.given
        return self._npy_value

    def block_until_ready(self):
        return self
